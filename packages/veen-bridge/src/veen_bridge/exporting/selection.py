"""Choosing streams to export: names, ids and patterns, of the streams that the configuration lists (P5)."""

from __future__ import annotations

from collections.abc import Sequence

from veen_bridge.roles.mapping import STAR, NamePattern
from veen_core.errors import ConfigError
from veen_core.stream import stream_id


def select_streams(listed: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the streams to export, each once; raise ``ConfigError`` for one that is not listed.

    ``listed`` are names or patterns. A pattern in ``wanted`` stands for the listed names that it matches.
    """
    names = [each for each in listed if STAR not in each]
    if not wanted:
        if not names:
            raise ConfigError(
                "the configuration lists no stream by name",
                action="name the streams to export, or list them under `streams` in bridge.yaml",
            )
        return list(dict.fromkeys(names))
    found = [name for each in wanted for name in _chosen(each, listed, names)]
    return list(dict.fromkeys(found))


def _chosen(wanted: str, listed: Sequence[str], names: Sequence[str]) -> list[str]:
    if STAR in wanted:
        if matching := [name for name in names if NamePattern(wanted).match(name) is not None]:
            return matching
        raise ConfigError(
            f"no stream that the configuration lists matches {wanted!r}",
            action="list the names under `streams` in bridge.yaml: a hub does not know the names of streams",
        )
    if any(NamePattern(each).match(wanted) is not None for each in listed):
        return [wanted]
    if same := [name for name in names if stream_id(name) == stream_id(wanted)]:
        return same[:1]
    raise ConfigError(
        f"stream {wanted!r} is not listed in the configuration: this bridge may not export it (AGB0 4.3)",
        action="add it to `streams` in bridge.yaml",
    )
