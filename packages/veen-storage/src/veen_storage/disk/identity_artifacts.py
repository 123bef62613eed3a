"""The identity artifacts as they are at one moment, for whoever reads beside a hub that may rotate (§8.4).

A rotation replaces three files one after another (``hub_keys``). While hub-identity.next is there it holds,
and the others follow from it; when it is not, they agree, unless it came and went while they were read.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from veen_core import hub_identity
from veen_core.errors import DecodeError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Signature
from veen_storage.disk import hub_keys
from veen_storage.disk.hub_keys import NextIdentity
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, MismatchError

ATTEMPTS: Final = 50
PAUSE: Final = 0.02


class Artifacts(NamedTuple):
    """An identity record that was verified, and its signature by the newest key."""

    identity: HubIdentity
    signature: Signature

    def files(self, layout: Layout) -> dict[str, bytes]:
        """By name, as they lie in a directory."""
        return {
            layout.identity.name: self.identity.encode(),
            layout.identity_signature.name: bytes(self.signature),
            layout.key_map.name: hub_keys.encode_key_map(self.identity),
        }


def read_artifacts(layout: Layout, hub: HubId) -> Artifacts:
    """All of one moment; raises what is wrong with them if that stays so."""
    for _attempt in range(ATTEMPTS):
        try:
            return _read_next(layout, hub) or _read_settled(layout, hub)
        except DamageError:
            time.sleep(PAUSE)
    return _read_next(layout, hub) or _read_settled(layout, hub)


def _read_next(layout: Layout, hub: HubId) -> Artifacts | None:
    """Of a rotation that holds already, and is being finished."""
    name = layout.identity_next.name
    try:
        pending = NextIdentity.decode(layout.identity_next.read_bytes())
        hub_identity.verify_identity(pending.identity, pinned=hub)
        hub_identity.verify_identity_signature(pending.identity, pending.signature)
    except FileNotFoundError:
        return None
    except DecodeError as exc:
        raise DamageError(name, None, str(exc), "restore it from a clone") from exc
    except VeenError as exc:
        raise MismatchError(f"{name}: {exc}: another hub's files were mixed in; move it out") from exc
    return Artifacts(pending.identity, pending.signature)


def _read_settled(layout: Layout, hub: HubId) -> Artifacts:
    identity = hub_keys.read_identity(layout, hub)
    signature = Signature(layout.identity_signature.read_bytes())
    try:
        hub_identity.verify_identity_signature(identity, signature)
    except VeenError as exc:
        raise DamageError(layout.identity_signature.name, None, str(exc)) from exc
    return Artifacts(identity, signature)
