"""Which hub is meant, and whether this is it (§8.4, KEX0.1). No hub is ever trusted silently.

A pin is a ``HubId``, a ``HubPk`` (the hub's first key), either in hex, a whole ``HubIdentity``, or
``PinOnFirstUse``, which is an explicit choice to believe the first answer and no other after it. What was
believed once is also kept in the state store: an identity may grow by endorsed keys and take nothing back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from veen_core import stream
from veen_core.checkpoint import Checkpoint, verify_witnesses
from veen_core.errors import DecodeError, IdentityError, SignatureError, StateError
from veen_core.hub_identity import (
    HubIdentity,
    verify_checkpoint,
    verify_identity,
    verify_identity_signature,
    verify_successor,
)
from veen_core.ids import HubId, HubPk, UnixTime
from veen_core.profile import Profile
from veen_core.status import Status
from veen_hub.client.state.atomic_files import create, expand_user, replace


@dataclass(frozen=True, slots=True)
class PinOnFirstUse:
    """Believe the hub that answers first, write its identity to ``path``, refuse any other later."""

    path: Path | str


Pin = HubId | HubPk | HubIdentity | PinOnFirstUse | str


def check_status(status: Status, pin: Pin, seen: UnixTime | None = None) -> None:
    """The identity that a hub shows is the pinned one, whole and signed; raises ``IdentityError``.

    ``seen`` is the newest ``hub_ts`` in a receipt verified under ``pin``: no key may end before it.
    """
    shown = status.identity
    verify_identity(shown)
    verify_identity_signature(shown, status.identity_sig)
    _check_pin(status, pin, seen)
    if status.control_label != stream.control_label(stream.routing_key(shown.hub_id)):
        raise IdentityError("status.control_label: is not the one that follows from hub_id (H5)")


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
    """hub_id or the first hub_pk: the two cannot be confused, one is the hash of the other (B13)."""
    try:
        pinned = HubId.from_hex(text.strip().lower())
    except DecodeError as exc:
        raise IdentityError(f"trust: want hub_id or hub_pk as 64 hex digits: {exc}") from None
    if bytes(pinned) in (bytes(shown.hub_id), bytes(shown.hub_keys[0].hub_pk)):
        return
    later = any(bytes(pinned) == bytes(key.hub_pk) for key in shown.hub_keys[1:])
    hint = ": this is a later key of that hub, pin its hub_id" if later else ""
    raise IdentityError(
        f"hub-identity §8.4: this is hub {shown.hub_id.hex()}, pinned is {pinned.hex()}{hint}"
    )


def _check_first_use(status: Status, path: Path) -> None:
    shown = status.identity
    try:
        held = HubIdentity.decode(path.read_bytes())
    except FileNotFoundError:
        if not create(path, shown.encode()):
            _check_first_use(status, path)  # another process pinned meanwhile: then that is the hub
        return
    except (OSError, DecodeError) as exc:
        raise StateError(f"{path}: the pinned identity cannot be read: {exc}") from None
    try:
        verify_successor(held, shown, status.identity_sig)
    except IdentityError as exc:
        raise IdentityError(
            f"{exc}. If the hub was replaced on purpose, remove {os.fspath(path)} and pin the new one"
        ) from None
    if shown != held:
        replace(path, shown.encode())


def check_profile(shown: Profile, held: Profile) -> None:
    """A hub's profile is fixed for its life (H10): another epoch_sec leads to labels that hold nothing."""
    if shown != held:
        raise IdentityError(
            "status.profile: is not the one that this hub had before, and a hub keeps it for life (H10). "
            "Nobody signs a status: if the first one was false, remove fixed/profile from the state store"
        )


def check_signatures(
    identity: HubIdentity, checkpoint: Checkpoint, epoch_sec: int, *, since: UnixTime, now: UnixTime
) -> None:
    """A checkpoint is signed by a key of the hub and, in a rotation window, by all active ones (KEX0.1).

    It does not say when it was made: at some moment from ``since``, its last entry, to ``now`` or to the end
    of its epoch (ADR 0005). Its signatures must be those of one such moment.
    """
    signer = verify_checkpoint(identity, checkpoint, epoch_sec)
    last = min(now, (checkpoint.epoch + 1) * epoch_sec - 1) if epoch_sec else now
    changes = {time for key in identity.hub_keys for time in (key.valid_from, key.valid_until) if time}
    why: SignatureError | None = None
    for moment in (since, *sorted(time for time in changes if since < time <= last)):
        active = identity.active_at(moment)
        required = [key.hub_pk for key in active] if len(active) > 1 else []
        try:
            verify_witnesses(checkpoint, required, [key.hub_pk for key in identity.hub_keys])
        except SignatureError as exc:
            why = why or exc
        else:
            if signer in active:
                return
    raise why or SignatureError("CHECKPOINT.hub_sig §4.4: by a key that was not active when it was made")
