"""Pins: checking that a hub is the one that the user trusts (§8.4, KEX0.1). No hub is trusted by default.

A pin is a ``HubId``, a ``HubPk`` (the hub's first key), either of them in hex, a whole ``HubIdentity``, or
``PinOnFirstUse``: the explicit choice to trust the first answer and no other later. The client also stores
the identity that it has accepted. A hub may add endorsed keys to its identity later, but may not remove any.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from veen_core import stream
from veen_core.errors import DecodeError, IdentityError, StateError
from veen_core.hub_identity import (
    HubIdentity,
    verify_identity,
    verify_identity_signature,
    verify_successor,
)
from veen_core.ids import HubId, HubPk, UnixTime
from veen_core.profile import Profile
from veen_core.status import Status
from veen_hub.client.atomic_files import create_file, expand_user, replace_file


@dataclass(frozen=True, slots=True)
class PinOnFirstUse:
    """Trust the hub that answers first: write its identity to ``path``, and refuse any other later."""

    path: Path | str


Pin = HubId | HubPk | HubIdentity | PinOnFirstUse | str


def check_status(status: Status, pin: Pin, seen: UnixTime | None = None) -> None:
    """Check that a hub's status carries a valid, signed identity that fits ``pin``; raises ``IdentityError``.

    ``seen`` is the newest ``hub_ts`` of a receipt verified under ``pin``: the identity must not end the
    validity of a key before that time.
    """
    shown = status.identity
    verify_identity(shown)
    verify_identity_signature(shown, status.identity_sig)
    _check_pin(status, pin, seen)
    if status.control_label != stream.control_label(stream.routing_key(shown.hub_id)):
        raise IdentityError("status.control_label is not the label that follows from hub_id (RESOLUTIONS H5)")


def _check_pin(status: Status, pin: Pin, seen: UnixTime | None) -> None:
    shown = status.identity
    match pin:
        case PinOnFirstUse():
            _check_first_use(status, expand_user(pin.path))
        case HubIdentity():
            verify_successor(pin, shown, status.identity_sig, seen=seen)
        case HubPk():
            verify_identity(shown, pinned=stream.hub_id(pin))
        case HubId():
            verify_identity(shown, pinned=pin)
        case str():
            _check_hex(shown, pin)


def _check_hex(shown: HubIdentity, text: str) -> None:
    """Check a pin in hex: a hub_id or the first hub_pk. A hub_id is the hash of that hub_pk (B13)."""
    try:
        pinned = HubId.from_hex(text.strip().lower())
    except DecodeError as exc:
        raise IdentityError(f"the pin is not a hub_id or hub_pk of 64 hex digits: {exc}") from None
    if bytes(pinned) in (bytes(shown.hub_id), bytes(shown.hub_keys[0].hub_pk)):
        return
    later = any(bytes(pinned) == bytes(key.hub_pk) for key in shown.hub_keys[1:])
    raise IdentityError(
        f"the hub at this address is {shown.hub_id.hex()}, but {pinned.hex()} is pinned (core §8.4)",
        action="pin the hub_id: the pin is a later key of this hub" if later else None,
    )


def _check_first_use(status: Status, path: Path) -> None:
    shown = status.identity
    try:
        held = HubIdentity.decode(path.read_bytes())
    except FileNotFoundError:
        if not create_file(path, shown.encode()):
            _check_first_use(status, path)  # another process has pinned a hub meanwhile
        return
    except (OSError, DecodeError) as exc:
        raise StateError(f"{path}: the pinned identity cannot be read: {exc}") from None
    try:
        verify_successor(held, shown, status.identity_sig)
    except IdentityError as exc:
        raise IdentityError(
            f"this is not the hub that was pinned in {path}: {exc.message}",
            action=f"if the hub was replaced on purpose, remove {os.fspath(path)} and pin the new one",
        ) from None
    if shown != held:
        replace_file(path, shown.encode())


def check_profile(shown: Profile, held: Profile) -> None:
    """Check that the hub's profile has not changed (H10): another epoch_sec would select empty labels."""
    if shown != held:
        raise IdentityError(
            "status.profile differs from the one that this hub had before, and a hub keeps its profile "
            "(RESOLUTIONS H10)",
            action="if the earlier status was forged (a status is not signed), remove fixed/profile from the "
            "state folder",
        )
