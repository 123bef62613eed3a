"""Check that no path leads back from the target zone to the source (AGB0 J3, RESOLUTIONS P5).

The check covers every token that a role could write with: its token files, and the tokens in its state
folder, for every hub. It cannot see networks or other identities; the guide says what the operator checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from veen_bridge.roles.config import IMPORT_PREFIX, OFFLINE, BridgeConfig
from veen_bridge.roles.session import RoleKeys
from veen_bridge.roles.templates import excess_streams
from veen_core.cap import CapToken, verify_token
from veen_core.errors import CapError, DecodeError
from veen_core.ids import ClientId, HubId
from veen_hub.client import FileStateStore, held_tokens
from veen_hub.client.roles import load_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFinding:
    """The result of one check."""

    check: str
    ok: bool
    detail: str


Side = tuple[BridgeConfig, RoleKeys]
"""The configuration and the keys of a role."""


def check_paths(
    config: BridgeConfig, keys: RoleKeys, *, other: Side | None = None
) -> tuple[PathFinding, ...]:
    """Check one role, and the role in the other zone if it is given."""
    if other is None:
        return tuple(_role(config, keys, None))
    findings = [
        replace(finding, check=f"{side[0].role}: {finding.check}")
        for side, opposite in (((config, keys), other), (other, (config, keys)))
        for finding in _role(*side, opposite)
    ]
    return (*findings, *_both(config, keys.bridge_id, other[0], other[1].bridge_id))


def _role(config: BridgeConfig, keys: RoleKeys, other: Side | None) -> list[PathFinding]:
    bridge = keys.bridge_id
    findings = [_one_hub(config), *_tokens(config, bridge), *_state(config)]
    if config.role == OFFLINE:
        findings += [*_sources(config, bridge), *_targets(config), *_source_readers(config, keys, other)]
    return findings


def _one_hub(config: BridgeConfig) -> PathFinding:
    which = "target" if config.role == OFFLINE else "source"
    return PathFinding(check="one hub", ok=True, detail=f"connects to its {which} hub only, {config.trust}")


def _tokens(config: BridgeConfig, bridge: ClientId) -> Iterator[PathFinding]:
    for path, token in zip(config.tokens, load_tokens(config.tokens), strict=True):
        yield _token(f"token {path.name}", token, config, bridge)
    if not config.tokens:
        # Without a token the role works only at a hub that is open, and there it may write to every stream.
        detail = "no token limits the role: at an open hub it may write to every stream"
        yield PathFinding(check="tokens", ok=False, detail=detail)


def _token(check: str, token: CapToken, config: BridgeConfig, bridge: ClientId) -> PathFinding:
    try:
        verify_token(token)
    except CapError as exc:
        return PathFinding(check=check, ok=False, detail=f"does not verify: {exc}")
    if token.subject_pk != bridge:
        return PathFinding(check=check, ok=False, detail="is for another identity than this role's")
    if excess := excess_streams(token, config.role, config.streams):
        names = ", ".join(each.hex() for each in excess)
        return PathFinding(
            check=check, ok=False, detail=f"permits writing to streams beyond the role: {names}"
        )
    return PathFinding(
        check=check,
        ok=True,
        detail=f"permits only streams of role {config.role} ({len(token.allow.stream_ids)})",
    )


def _state(config: BridgeConfig) -> Iterator[PathFinding]:
    """Check the tokens in the state folder, which were authorized earlier, each at some hub."""
    folder = config.client / "state"
    store = FileStateStore(folder) if folder.is_dir() else None
    for hub in _hubs(folder) if store is not None else ():
        assert store is not None
        check = f"state of hub {hub.hex()[:8]}"
        tokens = held_tokens(store, hub)
        if hub.hex() != config.trust and tokens:
            detail = f"holds tokens for another hub than the role's own, {hub.hex()}: {len(tokens)}"
            yield PathFinding(check=check, ok=False, detail=detail)
            continue
        excess = [
            each.hex() for token in tokens for each in excess_streams(token, config.role, config.streams)
        ]
        detail = (
            f"permits writing to streams beyond the role: {', '.join(excess)}"
            if excess
            else f"all tokens permit only streams of the role ({len(tokens)})"
        )
        yield PathFinding(check=check, ok=not excess, detail=detail)


def _hubs(folder: Path) -> Iterator[HubId]:
    for path in sorted(folder.iterdir()):
        try:
            hub = HubId.from_hex(path.name)
        except DecodeError:
            continue
        yield hub


def _sources(config: BridgeConfig, bridge: ClientId) -> Iterator[PathFinding]:
    for source in config.sources:
        check = f"source {source.hub_id.hex()[:8]}"
        if source.bridge_id == bridge:
            detail = "its bridge_online has the same key as this bridge_offline (RESOLUTIONS P5)"
            yield PathFinding(check=check, ok=False, detail=detail)
        elif source.bridge_id is None:
            detail = "accepts bundles of any bridge; name its bridge_id to be sure that the keys differ"
            yield PathFinding(check=check, ok=True, detail=detail)
        else:
            yield PathFinding(check=check, ok=True, detail="is made by a bridge with another key")


def _source_readers(config: BridgeConfig, keys: RoleKeys, other: Side | None) -> Iterator[PathFinding]:
    """Check that no folder with a source's reader key also has a key that signs there (RESOLUTIONS P5)."""
    online = {source.bridge_id for source in config.sources} | (
        {other[1].bridge_id} if other is not None else set()
    )
    for folder, reader in zip(config.source_readers, keys.source_reader_ids, strict=True):
        ok = reader not in online
        detail = "only reads" if ok else "has the signing key of bridge_online: this role could write there"
        yield PathFinding(check=f"source reader {folder.name}", ok=ok, detail=detail)


def _targets(config: BridgeConfig) -> Iterator[PathFinding]:
    """Check that every import stream is below import/: events in an export stream could be exported again."""
    for source in config.sources:
        for rule in source.mapping.rules:
            ok = rule.target.text.startswith(IMPORT_PREFIX)
            detail = "is below import/" if ok else "is not below import/: the events could be exported again"
            yield PathFinding(check=f"mapping to {rule.target.text}", ok=ok, detail=detail)


def _both(
    config: BridgeConfig, bridge: ClientId, other: BridgeConfig, other_bridge: ClientId
) -> Iterator[PathFinding]:
    yield PathFinding(
        check="two roles",
        ok=config.role != other.role,
        detail="one configuration per zone" if config.role != other.role else f"both have role {config.role}",
    )
    same = bridge == other_bridge
    yield PathFinding(
        check="two keys",
        ok=not same,
        detail="both roles have the same key (RESOLUTIONS P5)"
        if same
        else "the two roles have different keys",
    )
    same = not config.trusted_hubs.isdisjoint(other.trusted_hubs)
    yield PathFinding(
        check="two hubs",
        ok=not same,
        detail="both roles use one hub" if same else "the two roles use two hubs",
    )
