"""Policy from outside: what the hub asks before it accepts, and never decides itself (H6).

A policy is found by entry point under the name the configuration gives. It answers from a view that was
folded outside the hub; it is asked in the sequencer, so it answers from memory and at once. The default
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
"""The policy of the levels above core; veen-overlays brings it."""


@dataclass(slots=True)  # frozen would cost 2 µs a message
class Question:
    """A message that has passed every stateless check."""

    label: Label
    client_id: ClientId
    auth_ref: AuthRef | None
    token: CapToken | None
    size: int
    hub_ts: UnixTime


@runtime_checkable
class AdmissionPolicy(Protocol):
    """Where an answer is a text or None, None means go on, and the text is the reason the client sees.

    ``not_primary`` and ``revoked`` are asked once for a writer's messages in one batch, the others for each.
    """

    def not_primary(self, question: Question) -> str | None:
        """AUTH1 3.3: why this hub may not accept for the label → E.AUTH / NOT_PRIMARY."""

    def revoked(self, question: Question) -> str | None:
        """KEX1+ 4.3: what is revoked → E.CAP / REVOKED."""

    def pad_block(self, question: Question) -> int:
        """LCLASS0 6.2: what a ciphertext's length is a multiple of → E.SIZE / PADDING; 0: anything."""

    def rate(self, question: Question) -> Rate | None:
        """LCLASS0 6.2: the rate of the label's class → E.RATE / CAP_RATE; None: the token's own counts."""

    def retention(self) -> Mapping[Label, int]:
        """LCLASS0 6.2: for how many seconds payloads are kept, of labels whose class says so."""

    def enforces(self) -> tuple[str, ...]:
        """What it refuses or does, in words: for the hub's status."""

    def stale(self, now: UnixTime) -> str | None:
        """Why the view is too old to answer from; then the hub accepts nothing (fail closed)."""

    def describe(self) -> Mapping[str, str]:
        """For status and metrics: ``level``, the prefix the view rests on, its age as ``lag_sec``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a policy that follows logs is given."""

    reader: LogReader
    """Of the hub that holds the logs."""
    label_of: Callable[[StreamId], Label]
    """There; without epochs."""
    epochs_of: Callable[[StreamId], EpochLabels | None]
    """There; None without epochs."""
    stream_of: Callable[[Label], StreamId | None]
    """Here; only from inside a question."""
    learn: Callable[[Iterable[StreamId]], Awaitable[None]]
    """From then on this hub knows these streams' labels."""
    store: Callable[[str], ViewStore]
    """By name, to keep what was folded; in the data directory, open while the hub runs."""
    clock: Clock


@runtime_checkable
class FollowingPolicy(AdmissionPolicy, Protocol):
    """A policy that keeps its own view up to date; the hub runs it while it listens."""

    async def follow(self, around: Surroundings) -> None:
        """For ever; raises a ``VeenError`` if a log cannot be read, and is then called again."""


class AllowAll:
    """The default: no view, nothing refused."""

    def not_primary(self, question: Question) -> str | None:  # noqa: ARG002
        return None

    def revoked(self, question: Question) -> str | None:  # noqa: ARG002
        return None

    def pad_block(self, question: Question) -> int:  # noqa: ARG002
        return 0

    def rate(self, question: Question) -> Rate | None:  # noqa: ARG002
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
    """By entry point: the loaded object is called with hub_id and the configuration's options."""
    if name is None:
        return AllowAll()
    hint = "; install veen-overlays" if name == REALM else ""
    made = extension.make(extension.POLICIES, name, "policy.name", hub, options, hint=hint)
    if not isinstance(made, AdmissionPolicy):
        raise ConfigError(f"policy.name: {name!r} is not an AdmissionPolicy")
    return made
