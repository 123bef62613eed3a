"""Identify the hub at an address, and the name of its log (core §8.4, P1)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from veen_core import hub_log
from veen_core.errors import IdentityError
from veen_core.hub_identity import HubIdentity, verify_identity, verify_identity_signature, verify_successor
from veen_core.status import Status
from veen_core.tlog.policy import WitnessPolicy
from veen_hub.monitor.memory import HubRecord

FIRST: Final = "first"
"""The pin that accepts the hub that answers first, and no other from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTrust:
    """Which hubs to accept: pins in hex (hub_id or first hub_pk), ``first``, or logs that a policy names."""

    pins: frozenset[str] = frozenset()
    policy: WitnessPolicy | None = None

    @property
    def names_hubs(self) -> bool:
        """Whether a hub that was never seen before can be accepted."""
        return bool(self.pins) or (self.policy is not None and bool(self.policy.logs))

    def accepts(self, identity: HubIdentity) -> bool:
        """Return whether this is a hub to monitor; if there are pins, they alone decide."""
        if self.pins:
            return bool(self.pins & {identity.hub_id.hex(), identity.hub_keys[0].hub_pk.hex(), FIRST})
        return self._named_in_policy(identity) is not None

    def origin_of(self, status: Status) -> str:
        """Return the name of a hub's log: the policy's, else the hub's own on first contact, else P1's."""
        named = self._named_in_policy(status.identity) or status.hub_log_origin
        return named or hub_log.origin_of(status.identity.hub_id)

    def _named_in_policy(self, identity: HubIdentity) -> str | None:
        keys = {key.hub_pk for key in identity.hub_keys}
        logs = self.policy.logs if self.policy is not None else ()
        return next((log.key.name for log in logs if log.key.public in keys), None)


def identify(url: str, status: Status, known: HubRecord | None, trust: HubTrust) -> HubRecord:
    """Return the record of the hub that answers; raise ``IdentityError`` if it is not the pinned one.

    A known hub may have gained keys; the new record must continue the old one.
    """
    shown = status.identity
    if (known is None or trust.pins) and not trust.accepts(shown):
        raise IdentityError(
            f"{url} is hub {shown.hub_id.hex()}, which is not pinned",
            action=f"if this is the hub you mean, give --trust {shown.hub_id.hex()}",
        )
    if known is not None:
        try:
            verify_successor(known.identity, shown, status.identity_sig)
        except IdentityError as exc:
            raise IdentityError(
                f"this is not the hub that was pinned for {url}: {exc.message}",
                action="if the hub was replaced on purpose, use another --state folder",
            ) from None
        return dataclasses.replace(known, identity=shown)
    verify_identity(shown)
    verify_identity_signature(shown, status.identity_sig)
    return HubRecord(url=url, identity=shown, origin=trust.origin_of(status))
