"""A consistent read of the identity artifacts while another process may rotate the hub's key (core §8.4).

A rotation replaces three files one after another (``hub_keys``). While hub-identity.next exists, it is valid
and the other files follow from it. Otherwise the three files agree, unless a rotation happened while they
were read: then they are read again.
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
from veen_storage.errors import RESTORE, DamageError, MismatchError

MAX_ATTEMPTS: Final = 50
RETRY_SECONDS: Final = 0.02


class Artifacts(NamedTuple):
    """A verified identity record, and its signature by the newest key."""

    identity: HubIdentity
    signature: Signature

    def files(self, layout: Layout) -> dict[str, bytes]:
        """Return the content of the three files by name."""
        return {
            layout.identity.name: self.identity.encode(),
            layout.identity_signature.name: bytes(self.signature),
            layout.key_map.name: hub_keys.encode_key_map(self.identity),
        }


def read_artifacts(layout: Layout, hub: HubId) -> Artifacts:
    """Read the artifacts; raise if they disagree for longer than ``MAX_ATTEMPTS`` retries."""
    for _attempt in range(MAX_ATTEMPTS):
        try:
            return _read_next(layout, hub) or _read_settled(layout, hub)
        except DamageError:
            time.sleep(RETRY_SECONDS)
    return _read_next(layout, hub) or _read_settled(layout, hub)


def _read_next(layout: Layout, hub: HubId) -> Artifacts | None:
    """Read the artifacts of a rotation that is valid and not finished; None if there is none."""
    name = layout.identity_next.name
    try:
        pending = NextIdentity.decode(layout.identity_next.read_bytes())
        hub_identity.verify_identity(pending.identity, pinned=hub)
        hub_identity.verify_identity_signature(pending.identity, pending.signature)
    except FileNotFoundError:
        return None
    except DecodeError as exc:
        raise DamageError(name, None, str(exc), RESTORE) from exc
    except VeenError as exc:
        raise MismatchError(
            f"{name}: {exc}: another hub's files were mixed in; move this file out of the data directory"
        ) from exc
    return Artifacts(pending.identity, pending.signature)


def _read_settled(layout: Layout, hub: HubId) -> Artifacts:
    identity = hub_keys.read_identity(layout, hub)
    signature = Signature(layout.identity_signature.read_bytes())
    try:
        hub_identity.verify_identity_signature(identity, signature)
    except VeenError as exc:
        raise DamageError(layout.identity_signature.name, None, str(exc)) from exc
    return Artifacts(identity, signature)
