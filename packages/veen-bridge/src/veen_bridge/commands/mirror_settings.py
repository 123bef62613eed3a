"""The settings of a mirror, from the options of ``veen bridge mirror``: hubs, streams, keys and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from veen_bridge.commands.arguments import unlock_with
from veen_bridge.exporting.selection import select_streams
from veen_bridge.mirror.process import Listen
from veen_bridge.mirror.service import HubTarget, MirrorSettings
from veen_bridge.mirror.stream_mirror import MirrorOptions, StreamPair
from veen_bridge.roles.mapping import MappingRule, NamePattern
from veen_bridge.transfer import Mode
from veen_cli.frame import CommandFailed, Exit, Passphrase, load_tls, parse_hub_url
from veen_core.cap import CapToken
from veen_core.errors import ConfigError, DecodeError
from veen_core.ids import HubId
from veen_core.keys import DhKey
from veen_hub.client import FileStateStore, Identity
from veen_overlays.control.records import ADMIN_STREAMS
from veen_overlays.identifiers import parse_realm

STATE_FOLDER: Final = "state"

TlsFiles = tuple[Path | None, Path | None, Path | None]
"""Authority, certificate and key."""


def read_settings(
    *,
    source_url: str,
    source_trust: str,
    source_ca: Path | None,
    source_cert: Path | None = None,
    source_cert_key: Path | None = None,
    target_url: str,
    target_trust: str,
    target_ca: Path | None,
    target_cert: Path | None = None,
    target_cert_key: Path | None = None,
    streams: tuple[str, ...],
    realm: str | None = None,
    stream_list: Path | None,
    rules: tuple[str, ...],
    mode: str,
    client: Path,
    source_readers: tuple[Path, ...],
    target_readers: tuple[Path, ...],
    caps: tuple[Path, ...],
    state: Path | None,
    passphrase_file: Path | None,
) -> MirrorSettings:
    """Return the settings that the options describe; reads keys and tokens."""
    unlock = unlock_with(Passphrase(passphrase_file))
    identity = Identity.of(unlock(client))

    def keys(folders: tuple[Path, ...]) -> tuple[DhKey, ...]:
        return tuple(key for folder in folders for key in Identity.of(unlock(folder)).dh_keys)

    if realm is not None:
        named = parse_realm(realm)
        streams = (*streams, *(stream_of(named).hex() for stream_of in ADMIN_STREAMS))
    if not streams:
        raise click.UsageError("name the streams with --streams, or a realm with --realm.")
    chosen = Mode(mode)
    if chosen is Mode.RESEAL and not source_readers:
        raise click.UsageError("--mode reseal needs --source-reader: the bridge must open what it seals.")
    return MirrorSettings(
        source=_hub("source", source_url, source_trust, (source_ca, source_cert, source_cert_key)),
        target=_hub("target", target_url, target_trust, (target_ca, target_cert, target_cert_key)),
        pairs=stream_pairs(streams, stream_list, rules),
        options=MirrorOptions(
            mode=chosen,
            bridge_id=identity.client_id,
            source_readers=keys(source_readers),
            target_readers=keys(target_readers),
        ),
        identity=identity,
        store=FileStateStore(state or client / STATE_FOLDER),
        caps=tuple(_token(path) for path in caps),
    )


def _hub(side: str, url: str, trust: str, tls_files: TlsFiles) -> HubTarget:
    try:
        pin = HubId.from_hex(trust.strip().lower())
    except DecodeError as exc:
        raise click.UsageError(f"--{side}-trust: {exc}") from None
    return HubTarget(url=parse_hub_url(url), pin=pin, tls=load_tls(*tls_files))


def _token(path: Path) -> CapToken:
    try:
        return CapToken.decode(path.read_bytes())
    except DecodeError as exc:
        raise CommandFailed(f"{path} is not a cap token: {exc}", Exit.USAGE) from None


def stream_pairs(
    wanted: tuple[str, ...], listed: Path | None, rules: tuple[str, ...]
) -> tuple[StreamPair, ...]:
    """Return the streams to mirror with their names at the target, each source and each target once (J1)."""
    asked = [name for each in wanted for name in each.split(",") if name]
    names = [line.strip() for line in listed.read_text().splitlines()] if listed is not None else []
    known = [name for name in names if name and not name.startswith("#")]
    plain = [name for name in asked if not NamePattern(name).is_open]
    found = select_streams([*known, *plain], asked)
    mapping = [_rule(each) for each in rules]
    pairs = []
    for name in found:
        target = next((to for rule in mapping if (to := rule.apply(name)) is not None), name)
        pairs.append(StreamPair(source=name, target=target))
    if len({pair.target for pair in pairs}) != len(pairs):
        raise ConfigError(
            "--map: two streams would be copied into one",
            action="give each stream its own name at the target (AGB0 4.5, J1)",
        )
    return tuple(pairs)


def _rule(text: str) -> MappingRule:
    source, sign, target = text.partition("=")
    if not sign:
        raise click.UsageError(f"--map {text!r}: write FROM=TO, such as 'core/*=mirror/core/*'.")
    return MappingRule.of(source, target)


def listen_address(text: str) -> Listen:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"--listen {text}: write it like 127.0.0.1:9100.")
    return Listen(host=host.strip("[]"), port=int(port))
