"""The policy view: the rules that a hub enforces, folded from its realm's admin streams (spec-2 §8, H6).

A view is a value: one folded state per admin stream, each with the log prefix it was folded from. It answers
from memory and reads no clock: callers pass ``now``. A view allows everything that its level does not
regulate. If a stream that the level needs was never folded, or was last folded too long ago, ``stale``
returns the reason, and the hub accepts no message.

The schema registry (META0+) is not part of the view. It describes schemas, and nothing is admitted or
refused by it (spec-2 7.2), so a hub does not read it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from veen_core.cap import CapToken, Rate, TokenHash
from veen_core.ids import AuthRef, ClientId, HubId, Label, MmrRoot, StreamId
from veen_core.utc import format_utc
from veen_overlays.control.records import (
    Authority,
    LabelClass,
    RevocationKind,
    admin_stream,
    label_class_stream,
    revocation_stream,
)
from veen_overlays.control.state import (
    Authorities,
    Records,
    Registers,
    authority_at,
    class_of,
    revocation_at,
)
from veen_overlays.identifiers import RealmId
from veen_overlays.operations.access import access_stream
from veen_overlays.operations.domain.state import DomainState
from veen_overlays.operations.grants import Grant, refused_grant, revocation_of, revoked_at
from veen_overlays.operations.overlays import DomainCourse, state_after

S = TypeVar("S")


class Level(enum.StrEnum):
    """The compliance levels of spec-2 §8; each includes the levels before it."""

    CORE = "core"
    FEDERATED = "federated"
    HARDENED = "hardened"
    META = "meta"
    ACCESS = "access"
    """Spec-3 §3 in addition: only grants and bootstrapped tokens admit (A2)."""

    def includes(self, other: Level) -> bool:
        order = list(Level)
        return order.index(self) >= order.index(other)


class FoldedPrefix(NamedTuple, Generic[S]):
    """A folded state and the log prefix it was folded from."""

    label: Label
    upto_seq: int
    mmr_root: MmrRoot
    as_of: int
    """Hub time just before the log was read to its end."""
    state: S
    labels: frozenset[Label] = frozenset()
    """Every label that was folded; more than one if the stream has a label per epoch."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How a hub treats the labels of a class (LCLASS0 6.2)."""

    pad_block: int = 0
    """Bytes that a ciphertext's length must be a multiple of; 0 allows any length."""
    rate_percent: int = 100
    """Share of the rate that a token allows."""

    def rate(self, token_rate: Rate) -> Rate:
        """The class's share of a token's rate, rounded up, so that a small rate does not become zero."""
        return Rate(
            per_sec=-(-token_rate.per_sec * self.rate_percent // 100),
            burst=-(-token_rate.burst * self.rate_percent // 100),
        )


DEFAULT_HANDLING: Final = Handling()
HANDLING: Final[Mapping[str, Handling]] = {
    "user": Handling(pad_block=256),
    "wallet": Handling(pad_block=256),
    "log": Handling(),
    "metric": Handling(),
    "admin": Handling(rate_percent=400),
    "control": Handling(rate_percent=400),
    "bulk": Handling(rate_percent=25),
}
"""The hints of LCLASS0 6.2 as numbers."""

FOREVER_SEC: Final = 2**63
"""Retention that never ends: longer than any payload can be old."""

ENFORCED: Final = (
    (Level.FEDERATED, "authority: only a stream's primary accepts (AUTH1)"),
    (Level.HARDENED, "revocation of client keys, auth_refs and tokens (KEX1+)"),
    (Level.META, "padding, rate and retention by label class (LCLASS0)"),
    (Level.ACCESS, "admission by access grants and revocations (spec-3 §3)"),
)
"""The rule that each level adds, in words for the hub's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """The folded admin streams of one realm, as one hub enforces them."""

    level: Level
    realm: RealmId
    hub_id: HubId
    authorities: FoldedPrefix[Authorities] | None = None
    revocations: FoldedPrefix[Records] | None = None
    classes: FoldedPrefix[Registers] | None = None
    access: FoldedPrefix[DomainCourse] | None = None
    issuers: frozenset[bytes] = frozenset()
    """The keys whose grants and revocations count: the issuers that the hub accepts (A1, H18)."""

    # --- authority (AUTH1)

    def authority(self, stream: StreamId, now: int) -> Authority | None:
        """The authority record in force for a stream; None if there is none (AUTH1 3.2)."""
        if self.authorities is None:
            return None
        return authority_at(self.authorities.state, self.realm, stream, now)

    def not_primary(self, stream: StreamId | None, now: int) -> str | None:
        """Why this hub may not accept a message for the stream; None if it may (AUTH1 3.3).

        Every hub accepts messages for a stream without a record, and for a multi-primary stream. ``stream``
        is None if the hub does not know the label's stream; no record applies in that case (AUTH1 3.1).
        """
        if stream is None or not self.level.includes(Level.FEDERATED):
            return None
        record = self.authority(stream, now)
        if record is None or record.policy == "multi-primary" or record.primary_hub == self.hub_id:
            return None
        return f"not primary for label: submit to hub {record.primary_hub.hex()}"

    def multi_primary(self, now: int) -> frozenset[StreamId]:
        """The streams that every hub may accept messages for (AUTH1 3.3, step 3)."""
        named = ((stream, self.authority(stream, now)) for stream in self.named_streams)
        return frozenset(s for s, record in named if record is not None and record.policy == "multi-primary")

    @property
    def named_streams(self) -> frozenset[StreamId]:
        """The streams of the realm's authority records; the hub must know their labels to refuse messages."""
        if self.authorities is None or not self.level.includes(Level.FEDERATED):
            return frozenset()
        size = len(self.realm)
        keys = (key for key in self.authorities.state.get("records", {}) if key[:size] == self.realm)
        return frozenset(StreamId(key[size:]) for key in keys)

    # --- revocation (KEX1+)

    def revoked(
        self, client: ClientId, auth_ref: AuthRef | None, token: TokenHash | None, now: int
    ) -> str | None:
        """Which of client key, auth_ref and token is revoked, and why; None if none is (KEX1+ 4.3)."""
        if self.revocations is None or not self.level.includes(Level.HARDENED):
            return None
        targets: tuple[tuple[RevocationKind, bytes | None], ...] = (
            ("client-id", client),
            ("auth-ref", auth_ref),
            ("cap-token", token),
        )
        for kind, target in targets:
            found = None if target is None else revocation_at(self.revocations.state, kind, target, now)
            if found is not None:
                return f"{kind} revoked at {format_utc(found.ts)}" + (
                    f": {found.reason}" if found.reason else ""
                )
        return None

    # --- access grants (spec-3 §3)

    def grant(self, auth_ref: AuthRef, now: int) -> Grant | None:
        """Return a valid grant with this auth_ref, else the latest grant with it; None if there is none."""
        state = self._access_state
        if state is None:
            return None
        found = state.granted(auth_ref)
        valid = (g for g in found if refused_grant(g, state.revocations, self.issuers, now) is None)
        return next(valid, found[0] if found else None)

    def access_revoked(self, auth_ref: AuthRef | None, token: CapToken | None) -> str | None:
        """Why an ``access.revoke.v1`` ended the token; None if none did (spec-3 3.3, A2).

        A token that was authorized at the hub is not a grant, so no grant precedes its revocation: any
        revocation of its subject ends the token.
        """
        state = self._access_state
        if state is None or token is None or auth_ref is None:
            return None
        if grants := state.granted(auth_ref):
            ends = [revoked_at(grant, state.revocations, self.issuers) for grant in grants]
            seq = None if None in ends else max(end for end in ends if end is not None)
        else:
            seq = revocation_of(
                auth_ref, token.subject_pk, state.revocations, {token.issuer_pk, *self.issuers}
            )
        return None if seq is None else f"auth-ref revoked by message {seq} of the access stream"

    @property
    def _access_state(self) -> DomainState | None:
        if self.access is None or not self.level.includes(Level.ACCESS):
            return None
        return state_after(self.access.state)

    # --- label classes (LCLASS0)

    def label_class(self, label: Label) -> LabelClass | None:
        """The class record of a label; None if there is none or the level ignores classes."""
        if self.classes is None or not self.level.includes(Level.META):
            return None
        return class_of(self.classes.state, label)

    def handling(self, label: Label) -> Handling:
        """How messages of the label are treated: by its class, or by default."""
        found = self.label_class(label)
        return DEFAULT_HANDLING if found is None else HANDLING.get(found.class_, DEFAULT_HANDLING)

    def pad_block(self, label: Label) -> int:
        """Bytes that the length of the label's ciphertexts must be a multiple of; 0 allows any length."""
        return self.handling(label).pad_block

    def rate(self, label: Label, token_rate: Rate | None, class_rates: Mapping[str, Rate]) -> Rate | None:
        """The rate of the label's class: the configured one, else a share of the token's rate.

        None if the class sets no rate, or if there is no token rate to take a share of.
        """
        found = self.label_class(label)
        if found is None:
            return None
        if (configured := class_rates.get(found.class_)) is not None:
            return configured
        handling = HANDLING.get(found.class_, DEFAULT_HANDLING)
        return None if token_rate is None or handling.rate_percent == 100 else handling.rate(token_rate)

    def retention(self) -> dict[Label, int]:
        """Seconds for which payloads are kept, by label: class hints, and for ever on the admin streams.

        The hub's default rule would prune the admin streams too, and a hub without them could not start.
        """
        return self._class_hints() | dict.fromkeys(self.own_labels, FOREVER_SEC)

    @property
    def own_labels(self) -> frozenset[Label]:
        """The labels that the view is folded from, in all epochs."""
        folded = [prefix for _, prefix in self.needed().values() if prefix is not None]
        return frozenset(prefix.label for prefix in folded).union(*(prefix.labels for prefix in folded))

    def _class_hints(self) -> dict[Label, int]:
        if self.classes is None or not self.level.includes(Level.META):
            return {}
        found = (class_of(self.classes.state, Label(label)) for label in self.classes.state)
        return {
            each.label: each.retention_hint
            for each in found
            if each is not None and each.retention_hint is not None
        }

    # --- age and origin

    def enforces(self) -> tuple[str, ...]:
        """The rules that the level enforces, in words."""
        return tuple(text for level, text in ENFORCED if self.level.includes(level))

    def needed(self) -> dict[str, tuple[StreamId, FoldedPrefix[Any] | None]]:
        """The admin streams that the level needs, by name, each with its folded prefix or None."""
        streams: dict[str, tuple[Level, StreamId, FoldedPrefix[Any] | None]] = {
            "authority": (Level.FEDERATED, admin_stream(self.realm), self.authorities),
            "revocation": (Level.HARDENED, revocation_stream(self.realm), self.revocations),
            "label-class": (Level.META, label_class_stream(self.realm), self.classes),
            "access": (Level.ACCESS, access_stream(self.realm), self.access),
        }
        return {
            name: (stream, prefix)
            for name, (level, stream, prefix) in streams.items()
            if self.level.includes(level)
        }

    def lag_sec(self, now: int) -> int | None:
        """The age of the oldest folded state in seconds; None if a needed stream was never folded."""
        folded = [prefix for _, prefix in self.needed().values()]
        ages = [max(0, now - prefix.as_of) for prefix in folded if prefix is not None]
        return max(ages, default=0) if len(ages) == len(folded) else None

    def stale(self, now: int, max_age_sec: int) -> str | None:
        """Why the view is too old, so that the hub must fail closed; None if it is fresh."""
        for name, (_, prefix) in self.needed().items():
            if prefix is None:
                return f"the {name} stream was never folded"
            if now - prefix.as_of > max_age_sec:
                age = now - prefix.as_of
                return f"the {name} stream was last read to its end {age} s ago, more than {max_age_sec} s"
        return None

    def describe(self, now: int) -> dict[str, str]:
        """Level, age and the folded prefix of each stream, for status and metrics."""
        lag = self.lag_sec(now)
        shown = {"level": str(self.level), "lag_sec": "never" if lag is None else str(lag)}
        for name, (_, prefix) in self.needed().items():
            end = "never folded" if prefix is None else f"{prefix.label.hex()}@{prefix.upto_seq}"
            shown[name] = end if prefix is None else f"{end} {prefix.mmr_root.hex()}"
        return shown
