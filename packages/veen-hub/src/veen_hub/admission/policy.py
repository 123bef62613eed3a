"""Admission policy: an extension point for rules that the hub cannot derive from its own log (H6).

A policy is found by entry point, under the name in the configuration. It answers from a view that is folded
outside the hub. The sequencer calls it for every message, so it must answer from memory. The default policy
allows everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from veen_core.cap import CapToken, Rate
from veen_core.errors import ConfigError
from veen_core.ids import AuthRef, ClientId, HubId, Label, StreamId, UnixTime
from veen_core.protocols import Clock, LogReader
from veen_hub import extension
from veen_storage import ViewStore

if TYPE_CHECKING:
    from veen_hub.client.sending.epochs import EpochLabels

REALM = "realm"
"""Name of the policy of the levels above core; veen-overlays provides it."""


@dataclass(slots=True)  # frozen would cost 2 µs a message
class AdmissionQuestion:
    """The facts about one message that a policy may use."""

    label: Label
    client_id: ClientId
    auth_ref: AuthRef | None
    token: CapToken | None
    size: int
    hub_ts: UnixTime
    granted: bool = False
    """Whether the token stands for a grant that the policy has folded (spec-3 3.3)."""


GrantedToken = tuple[CapToken, UnixTime]
"""A token that a policy derives from a grant, and its issued_at: the time of the grant's receipt. A plain
tuple, because policies live in packages that do not import the hub.
"""


@runtime_checkable
class AdmissionPolicy(Protocol):
    """The rules of a policy; a rule that returns text refuses the message, and the client gets the text.

    ``not_primary`` and ``revoked`` are called once per writer and batch, the others for each message.
    """

    def not_primary(self, question: AdmissionQuestion) -> str | None:
        """AUTH1 3.3: return why this hub may not accept messages of the label (E.AUTH / NOT_PRIMARY)."""

    def revoked(self, question: AdmissionQuestion) -> str | None:
        """KEX1+ 4.3: return which key or token is revoked (E.CAP / REVOKED)."""

    def pad_block(self, question: AdmissionQuestion) -> int:
        """LCLASS0 6.2: return the padding block of ciphertexts (E.SIZE / PADDING); 0 allows any length."""

    def rate(self, question: AdmissionQuestion) -> Rate | None:
        """LCLASS0 6.2: return the rate of the label's class (E.RATE / CAP_RATE); None means the token's."""

    def retention(self) -> Mapping[Label, int]:
        """LCLASS0 6.2: return by label for how many seconds payloads are kept, if its class says it."""

    def enforces(self) -> tuple[str, ...]:
        """Return what the policy enforces, in words, for the hub's status."""

    def stale(self, now: UnixTime) -> str | None:
        """Return why the view is too old to use; the hub then accepts nothing (fail closed)."""

    def describe(self) -> Mapping[str, str]:
        """Return facts for status and metrics: ``level``, the folded prefix, the view's age ``lag_sec``."""


@runtime_checkable
class GrantingPolicy(AdmissionPolicy, Protocol):
    """A policy that knows tokens in addition to those of ``/tooling/authorize`` (spec-3 3.3, A2)."""

    def granted(self, auth_ref: AuthRef, hub_ts: UnixTime) -> GrantedToken | None:
        """Return the token of an auth_ref that is not authorized at the hub; None if the policy has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyServices:
    """Services for a policy that follows logs. The source hub is the hub that holds those logs."""

    reader: LogReader
    """Reads the logs of the source hub."""
    label_of: Callable[[StreamId], Label]
    """Derives a stream's label on the source hub, for a profile without epochs."""
    epochs_of: Callable[[StreamId], EpochLabels | None]
    """Derives a stream's labels on the source hub; None for a profile without epochs."""
    stream_of: Callable[[Label], StreamId | None]
    """Finds the stream of a label of this hub; only while an ``AdmissionQuestion`` is answered."""
    learn: Callable[[Iterable[StreamId]], Awaitable[None]]
    """Makes streams known to this hub, so that it recognises their labels."""
    store: Callable[[str], ViewStore]
    """Opens a named store for folded state, in the data directory of this hub."""
    clock: Clock
    inherited_from: Callable[[StreamId], Awaitable[HubId | None]]
    """Returns the ancestor of this hub that has entries of a stream; None if this hub is no successor, or if
    the logs are another hub's."""
    issuers: frozenset[bytes] = frozenset()
    """The issuers whose tokens (H18), grants and revocations (A1) this hub accepts."""


@runtime_checkable
class FollowingPolicy(AdmissionPolicy, Protocol):
    """A policy that keeps its own view up to date; the hub runs ``follow`` while it listens."""

    async def follow(self, services: PolicyServices) -> None:
        """Follow the logs until cancelled; the hub calls it again after a ``VeenError``."""


class AllowAll:
    """The default policy: no view, nothing refused."""

    def not_primary(self, question: AdmissionQuestion) -> str | None:  # noqa: ARG002
        return None

    def revoked(self, question: AdmissionQuestion) -> str | None:  # noqa: ARG002
        return None

    def pad_block(self, question: AdmissionQuestion) -> int:  # noqa: ARG002
        return 0

    def rate(self, question: AdmissionQuestion) -> Rate | None:  # noqa: ARG002
        return None

    def retention(self) -> Mapping[Label, int]:
        return {}

    def enforces(self) -> tuple[str, ...]:
        return ()

    def stale(self, now: UnixTime) -> str | None:  # noqa: ARG002
        return None

    def describe(self) -> Mapping[str, str]:
        return {"level": "core"}


def load_policy(name: str | None, hub: HubId, options: Mapping[str, object]) -> AdmissionPolicy:
    """Load a policy by entry point and call it with hub_id and the configured options."""
    if name is None:
        return AllowAll()
    hint = "; install veen-overlays" if name == REALM else ""
    made = extension.make(extension.POLICIES, name, "policy.name", hub, options, hint=hint)
    if not isinstance(made, AdmissionPolicy):
        raise ConfigError(f"policy.name: {name!r} is not an AdmissionPolicy")
    return made
