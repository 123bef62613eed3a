"""The sources of a scope: every stream has at least one, even if it has no entries (RESOLUTIONS P11, P13).

A coverage that leaves out a stream of the scope does not verify. So each engine names an empty source for a
stream that it knows and that has no entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from veen_core import stream as streams
from veen_core.ids import Epoch, HubId
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.query.result.coverage import Prefix, in_order

UNKNOWN: Final = ("is unknown here", "name a stream that is recorded and that you may read")
"""Why a stream is refused, and the next step."""


def empty_prefix(stream: str, hub_id: HubId) -> Prefix:
    """Return the prefix of a stream without entries; the label of epoch 0 represents all of its labels."""
    label = streams.label(streams.routing_key(hub_id), streams.stream_id(stream), Epoch(0))
    return Prefix(stream=stream, hub_id=hub_id, label=label, epoch=0, to_seq=0, mmr_root=None)


def scope_prefixes(
    found: Iterable[Prefix],
    scope: Sequence[str],
    homes: Mapping[str, HubId],
    unknown: tuple[str, str] = UNKNOWN,
) -> tuple[Prefix, ...]:
    """Return the prefixes of a scope in the order of P11, with an empty one for a stream without entries.

    ``homes`` names, for each stream that the engine knows, the hub of that empty source. Raise ``QueryError``
    (forbidden_scope) for a stream that is neither in ``homes`` nor among ``found``.
    """
    prefixes = [prefix for prefix in found if prefix.stream in scope]
    covered = {prefix.stream for prefix in prefixes}
    for stream in scope:
        if stream in covered:
            continue
        if (home := homes.get(stream)) is None:
            why, action = unknown
            raise QueryError(
                QueryErrorCode.FORBIDDEN_SCOPE,
                f"scope (query-api §4.2): the stream {stream!r} {why}",
                action=action,
            )
        prefixes.append(empty_prefix(stream, home))
    return in_order(prefixes, scope)


def is_empty_source(prefix: Prefix) -> bool:
    """Return whether a prefix belongs to a source without entries (P13)."""
    return (prefix.from_seq, prefix.to_seq, prefix.mmr_root) == (1, 0, None)
