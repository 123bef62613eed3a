"""The policy view: what a hub of a level enforces, folded from its realm's admin streams (spec-2 §8, H6).

A view is a value: four states, each bound to the prefix it was folded from. It answers from memory and
knows no clock: ``now`` is handed in. Where the level does not include a profile, the view allows. Where a
stream that the level needs was never folded, or too long ago, ``stale`` says so and the hub accepts nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from veen_core.cap import Rate, TokenHash
from veen_core.ids import AuthRef, ClientId, HubId, Label, MmrRoot, SchemaId, StreamId
from veen_overlays.control.records import (
    Authority,
    LabelClass,
    RevocationKind,
    SchemaDescriptor,
    admin_stream,
    label_class_stream,
    revocation_stream,
    schema_stream,
)
from veen_overlays.control.state import (
    Records,
    Registers,
    authority_at,
    class_of,
    revocation_at,
    schema_of,
)
from veen_overlays.identifiers import RealmId

S = TypeVar("S")


class Level(enum.StrEnum):
    """spec-2 §8; each includes those before it."""

    CORE = "core"
    FEDERATED = "federated"
    HARDENED = "hardened"
    META = "meta"

    def includes(self, other: Level) -> bool:
        order = list(Level)
        return order.index(self) >= order.index(other)


class FoldedPrefix(NamedTuple, Generic[S]):
    """A state and the prefix it rests on."""

    label: Label
    upto_seq: int
    mmr_root: MmrRoot
    as_of: int
    """When the prefix was known to be the whole log."""
    state: S
    labels: frozenset[Label] = frozenset()
    """All that it was folded from, where a stream has a label for each epoch."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How a hub treats a class of labels (LCLASS0 6.2)."""

    pad_block: int = 0
    """What a ciphertext's length is a multiple of; 0: anything. 256 lets 1024 pass, its multiple."""
    rate_percent: int = 100
    """Of the rate a token allows."""

    def rate(self, own: Rate) -> Rate:
        """The share of a token's rate, rounded up: a class does not turn little into nothing."""
        return Rate(
            per_sec=-(-own.per_sec * self.rate_percent // 100), burst=-(-own.burst * self.rate_percent // 100)
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
"""6.2's hints as numbers: admin and control four times, bulk a quarter."""


FOREVER_SEC: Final = 2**63
"""Longer than any payload can be old."""

ENFORCED: Final = (
    (Level.FEDERATED, "authority: only a stream's primary accepts (AUTH1)"),
    (Level.HARDENED, "revocation of client keys, auth_refs and tokens (KEX1+)"),
    (Level.META, "padding, rate and retention by label class (LCLASS0)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """Everything a hub asks, of one realm."""

    level: Level
    realm: RealmId
    hub_id: HubId
    authorities: FoldedPrefix[Records] | None = None
    revocations: FoldedPrefix[Records] | None = None
    classes: FoldedPrefix[Registers] | None = None
    schemas: FoldedPrefix[Registers] | None = None

    # --- AUTH1

    def authority(self, stream: StreamId, now: int) -> Authority | None:
        """The record in force for a stream; None: unspecified (3.2)."""
        if self.authorities is None:
            return None
        return authority_at(self.authorities.state, self.realm, stream, now)

    def not_primary(self, stream: StreamId | None, now: int) -> str | None:
        """Why this hub may not accept for the stream (3.3). Unspecified and multi-primary are accepted.

        ``stream`` None: the hub cannot tell the label's stream (3.1), so no record can name it.
        """
        if stream is None or not self.level.includes(Level.FEDERATED):
            return None
        record = self.authority(stream, now)
        if record is None or record.policy == "multi-primary" or record.primary_hub == self.hub_id:
            return None
        return f"not primary for label: submit to hub {record.primary_hub.hex()}"

    def multi_primary(self, now: int) -> frozenset[StreamId]:
        """The streams for which every hub may accept: to be watched (3.3, step 3)."""
        named = ((stream, self.authority(stream, now)) for stream in self.named_streams)
        return frozenset(s for s, record in named if record is not None and record.policy == "multi-primary")

    @property
    def named_streams(self) -> frozenset[StreamId]:
        """Those that the realm's authority records name: a hub that knows their labels can refuse them."""
        if self.authorities is None or not self.level.includes(Level.FEDERATED):
            return frozenset()
        size = len(self.realm)
        keys = (key for key in self.authorities.state if key[:size] == self.realm)
        return frozenset(StreamId(key[size:]) for key in keys)

    # --- KEX1+

    def revoked(
        self, client: ClientId, auth_ref: AuthRef | None, token: TokenHash | None, now: int
    ) -> str | None:
        """What of a message is revoked (4.3); None: nothing."""
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
                return f"{kind} revoked at {found.ts}" + (f": {found.reason}" if found.reason else "")
        return None

    # --- LCLASS0, META0+

    def label_class(self, label: Label) -> LabelClass | None:
        if self.classes is None or not self.level.includes(Level.META):
            return None
        return class_of(self.classes.state, label)

    def handling(self, label: Label) -> Handling:
        """Of the label's class, or the default."""
        found = self.label_class(label)
        return DEFAULT_HANDLING if found is None else HANDLING.get(found.class_, DEFAULT_HANDLING)

    def pad_block(self, label: Label) -> int:
        """What the length of the label's ciphertexts is a multiple of; 0: anything."""
        return self.handling(label).pad_block

    def rate(self, label: Label, own: Rate | None, rates: Mapping[str, Rate]) -> Rate | None:
        """The rate of the label's class: as the deployment set it, else a share of the token's own.

        None: the class says nothing, or there is no rate to take a share of.
        """
        found = self.label_class(label)
        if found is None:
            return None
        if (chosen := rates.get(found.class_)) is not None:
            return chosen
        handling = HANDLING.get(found.class_, DEFAULT_HANDLING)
        return None if own is None or handling.rate_percent == 100 else handling.rate(own)

    def retention(self) -> dict[Label, int]:
        """For how long payloads are kept, where a class says so; of the realm's own streams, for ever.

        A hub's default rule would prune those too, and a hub without them could not start again.
        """
        return self._hinted() | dict.fromkeys(self.own_labels, FOREVER_SEC)

    @property
    def own_labels(self) -> frozenset[Label]:
        """What the view is folded from, in all epochs."""
        bound = [held for _, held in self.needed().values() if held is not None]
        return frozenset(held.label for held in bound).union(*(held.labels for held in bound))

    def _hinted(self) -> dict[Label, int]:
        if self.classes is None or not self.level.includes(Level.META):
            return {}
        found = (class_of(self.classes.state, Label(label)) for label in self.classes.state)
        return {
            each.label: each.retention_hint
            for each in found
            if each is not None and each.retention_hint is not None
        }

    def schema(self, schema: SchemaId) -> SchemaDescriptor | None:
        if self.schemas is None or not self.level.includes(Level.META):
            return None
        return schema_of(self.schemas.state, schema)

    # --- how old, and on what it rests

    def enforces(self) -> tuple[str, ...]:
        """What the level refuses or does, in words."""
        return tuple(text for level, text in ENFORCED if self.level.includes(level))

    def needed(self) -> dict[str, tuple[StreamId, FoldedPrefix[Any] | None]]:
        """The admin streams that the level wants followed, and what is held of each."""
        streams: dict[str, tuple[Level, StreamId, FoldedPrefix[Any] | None]] = {
            "authority": (Level.FEDERATED, admin_stream(self.realm), self.authorities),
            "revocation": (Level.HARDENED, revocation_stream(self.realm), self.revocations),
            "label-class": (Level.META, label_class_stream(self.realm), self.classes),
            "meta-schema": (Level.META, schema_stream(self.realm), self.schemas),
        }
        return {
            name: (stream, held)
            for name, (level, stream, held) in streams.items()
            if self.level.includes(level)
        }

    def lag_sec(self, now: int) -> int | None:
        """The age of the oldest state; None if one was never folded."""
        ages = [None if held is None else max(0, now - held.as_of) for _, held in self.needed().values()]
        return None if None in ages else max((age for age in ages if age is not None), default=0)

    def stale(self, now: int, max_age_sec: int) -> str | None:
        """Why the view is too old to answer from; then nothing is accepted (fail closed)."""
        for name, (_, held) in self.needed().items():
            if held is None:
                return f"the {name} stream was never folded"
            if now - held.as_of > max_age_sec:
                return (
                    f"the {name} stream was last seen whole {now - held.as_of} s ago, at most {max_age_sec}"
                )
        return None

    def describe(self, now: int) -> dict[str, str]:
        """For status and metrics: level, lag, and the prefix of each stream."""
        lag = self.lag_sec(now)
        shown = {"level": str(self.level), "lag_sec": "never" if lag is None else str(lag)}
        for name, (_, held) in self.needed().items():
            prefix = "never folded" if held is None else f"{held.label.hex()}@{held.upto_seq}"
            shown[name] = prefix if held is None else f"{prefix} {held.mmr_root.hex()}"
        return shown
