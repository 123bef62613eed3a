"""Agreements between several parties: definitions, confirmations, the active version (spec-3 §5).

Rules of the fold:

1. The first definition of a version counts; repetitions are counted and change nothing (M2). A version
   counts only if it is higher than every version defined before it (5.3).
2. A confirmation counts if the party, or a key linked to it, has signed it (see ``key_links``), and if it
   comes after the definition.
3. The latest confirmation of a party for a version replaces its earlier ones in stream order (M1). Only
   ``accept`` agrees; every other word, ``withdraw`` among them, does not.

The state has no clock and no policy. ``active_version`` answers for a time and a policy.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from veen_core.hashing import Ht, u64be
from veen_core.ids import AttRoot, FixedBytes, OperationId, UnixTime
from veen_overlays.fold.event import Event, Message
from veen_overlays.fold.monoid import FIRST_COUNTED, LWW, CountedValue, Monoid, StampedValue, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.operations.frequent_record import Groups, bulk_fold
from veen_overlays.operations.key_links import KEY_LINKS, lift_link, signs_for, take_link
from veen_overlays.operations.operation import IdentityId, operation, sorted_set
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.schema.pattern import is_free, is_text, string_content, uint
from veen_overlays.schema.record import Record, RecordRule, plain_fields

ACCEPT: Final = "accept"
REJECT: Final = "reject"
WITHDRAW: Final = "withdraw"


class AgreementId(FixedBytes):
    """The stable id of an agreement (spec-3 5.3)."""

    __slots__ = ()


class TermsHash(FixedBytes):
    """The hash of the canonical text of an agreement (spec-3 5.3)."""

    __slots__ = ()


def agreement_id(name: str) -> AgreementId:
    """``Ht("veen/agreement", name)``: the id of an agreement that parties know by a name."""
    return AgreementId(Ht("veen/agreement", name.encode()))


_HAS_PARTIES: Final = RecordRule("parties names at least one party", lambda r: bool(r.parties))
_EXPIRES_LATER: Final = RecordRule(
    "expiry_time is after effective_time",
    lambda r: r.expiry_time is None or r.effective_time is None or r.effective_time < r.expiry_time,
)


@operation(
    "agreement.definition.v1",
    section="spec-3 5.2",
    rules=(_HAS_PARTIES, sorted_set("parties"), _EXPIRES_LATER),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementDefinition(Record):
    """Define a version of an agreement: the hash of its terms, and the parties that have to confirm it."""

    agreement_id: AgreementId
    version: int
    terms_hash: TermsHash
    terms_attachment_root: AttRoot | None = None
    parties: tuple[IdentityId, ...]
    effective_time: UnixTime | None = None
    expiry_time: UnixTime | None = None
    metadata: Any | None = None


@operation("agreement.confirmation.v1", section="spec-3 5.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementConfirmation(Record):
    """State the decision of a party about a version: ``accept``, ``reject`` or ``withdraw``."""

    agreement_id: AgreementId
    version: int
    party_identity: IdentityId
    decision: str
    decision_time: UnixTime | None = None
    parent_operation_id: OperationId | None = None
    metadata: Any | None = None


# --- the summary of a range

AgreementState = Mapping[str, Any]

AGREEMENT_MONOID: Final[Monoid[AgreementState]] = product(
    links=KEY_LINKS, definitions=map_of(FIRST_COUNTED), decisions=map_of(LWW)
)


def _version_key(agreement: bytes, version: int) -> bytes:
    return agreement + u64be(version)


def _lift(event: Event) -> AgreementState:
    match event.record:
        case KeyContinuity():
            return lift_link(event)
        case AgreementDefinition(agreement_id=agreement, version=version):
            held = event.seq, event.identity, event.body, 1
            return {"definitions": {_version_key(agreement, version): held}}
        case AgreementConfirmation(agreement_id=agreement, version=version) as confirmed:
            signer = confirmed.party_identity + (event.client_id or b"")
            latest = event.stamp(0), confirmed.decision.encode()
            return {"decisions": {_version_key(agreement, version) + signer: latest}}
    raise AssertionError(f"not a record of this overlay: {event.record}")


def _add(found: dict[bytes, Any], groups: Groups, message: Message, identity: bytes) -> bool:
    """Add a confirmation; it replaces an earlier one of the same signer."""
    agreement, version, party, decision, _time, _parent, metadata = groups
    if not is_text(decision) or not (metadata is None or is_free(metadata)):
        return False
    key = agreement + u64be(uint(version)) + party + (message.client_id or b"")
    latest = (0, message.seq, identity), string_content(decision)
    found[key] = max(found[key], latest) if key in found else latest
    return True


# --- the meaning of a prefix


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a party about a version that counts: its latest one (M1)."""

    word: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of an agreement with the decisions about it."""

    seq: int
    """The position of the message that defines the version."""
    definition: AgreementDefinition
    body: bytes
    """The canonical bytes of the definition."""
    defined: int
    """How often the version was defined; only the first definition counts (M2)."""
    rises: bool
    """Whether the version is higher than every version defined before it (5.3); otherwise it does not
    count."""
    decisions: Mapping[IdentityId, Decision]
    """By party, in the order of their ids; decisions that the party has not signed are left out."""

    @property
    def accepted(self) -> frozenset[IdentityId]:
        """The identities that agree."""
        return frozenset(party for party, each in self.decisions.items() if each.word == ACCEPT)


class AgreementPolicy(enum.StrEnum):
    """How many parties must agree (spec-3 5.3)."""

    ALL = "all"
    MAJORITY = "majority"

    def is_met(self, parties: Collection[bytes], accepted: frozenset[IdentityId]) -> bool:
        """Whether enough of the parties agree."""
        agreeing = sum(party in accepted for party in parties)
        return agreeing == len(parties) if self is AgreementPolicy.ALL else 2 * agreeing > len(parties)


def agreement_ids(state: AgreementState) -> list[AgreementId]:
    """The agreements that are defined, sorted."""
    size = AgreementId.SIZE
    return sorted({AgreementId(key[:size]) for key in state.get("definitions", {})})


def versions_of(state: AgreementState, agreement: AgreementId) -> list[Version]:
    """The defined versions of an agreement, in the order of the stream."""
    return _versions(state).get(agreement, [])


def _versions(state: AgreementState) -> dict[AgreementId, list[Version]]:
    """Every agreement with its versions, in one pass over the state."""
    decisions = _decisions(state)
    found: dict[AgreementId, list[Version]] = {}
    highest: dict[AgreementId, int] = {}
    definitions: Iterable[CountedValue | None] = state.get("definitions", {}).values()
    for seq, _, body, count in sorted(filter(None, definitions)):
        defined = AgreementDefinition.decode(body)
        key = _version_key(defined.agreement_id, defined.version)
        earlier = found.setdefault(defined.agreement_id, [])
        made = Version(
            seq=seq,
            definition=defined,
            body=body,
            defined=count,
            rises=defined.version > highest.get(defined.agreement_id, -1),
            decisions={party: each for party, each in decisions.get(key, {}).items() if each.seq > seq},
        )
        earlier.append(made)
        highest[defined.agreement_id] = max(defined.version, highest.get(defined.agreement_id, 0))
    return found


def _decisions(state: AgreementState) -> dict[bytes, dict[IdentityId, Decision]]:
    """By version: the latest decision of each party that the party itself has sent (M1)."""
    links, at = state.get("links", {}), AgreementId.SIZE + 8
    found: dict[bytes, dict[IdentityId, Decision]] = {}
    held: Mapping[bytes, StampedValue] = state.get("decisions", {})
    for key in sorted(held):
        (_, seq, _), word = held[key]
        version, party, signer = key[:at], IdentityId(key[at : at + 32]), key[at + 32 :]
        if not signs_for(links, party, signer, seq):
            continue
        of_version = found.setdefault(version, {})
        if party not in of_version or of_version[party].seq < seq:
            of_version[party] = Decision(word.decode(), seq)
    return found


def active_version(versions: list[Version], at: int, policy: AgreementPolicy) -> Version | None:
    """The version that is active at a Unix time, or None (spec-3 5.3).

    A version takes over if enough of its own parties agree, and enough of the parties of the version that it
    supersedes: an agreement cannot be superseded without the consent of its own parties. When a version
    expires, the version that it superseded does not become active again.
    """
    current: Version | None = None
    for each in versions:
        starts = each.definition.effective_time
        if not each.rises or (starts is not None and at < starts):
            continue
        electorates = (each,) if current is None else (each, current)
        if all(policy.is_met(of.definition.parties, each.accepted) for of in electorates):
            current = each
    return current if current is not None and not _has_expired(current, at) else None


def _has_expired(version: Version, at: int) -> bool:
    ends = version.definition.expiry_time
    return ends is not None and at >= ends


# --- the overlay


def _shown(version: Version) -> dict[str, Any]:
    decisions = [
        {"party_identity": bytes(party), "decision": each.word, "seq": each.seq}
        for party, each in version.decisions.items()
    ]
    return {
        **plain_fields(version.body),
        "seq": version.seq,
        "defined": version.defined,
        "rises": version.rises,
        "decisions": decisions,
    }


def _view(state: AgreementState) -> list[Any]:
    versions = _versions(state)
    return [_shown(version) for agreement in sorted(versions) for version in versions[agreement]]


_TABLE: Final = table_of_maps(
    {
        "agreement_id": ColumnType.BYTES,
        "version": ColumnType.UINT,
        "terms_hash": ColumnType.BYTES,
        "parties": ColumnType.BYTES_LIST,
        "effective_time": ColumnType.UINT,
        "expiry_time": ColumnType.UINT,
        "seq": ColumnType.UINT,
        "defined": ColumnType.UINT,
        "rises": ColumnType.BOOL,
        "decisions": ColumnType.JSON,
    }
)

AGREEMENTS: Final[Overlay[AgreementState]] = Overlay(
    name="operation.agreements",
    title="Agreements: every version with its parties and their decisions (spec-3 §5).",
    schemas=(AgreementDefinition, AgreementConfirmation, KeyContinuity),
    monoid=AGREEMENT_MONOID,
    lift=_lift,
    view=_view,
    bulk=bulk_fold(
        {AgreementConfirmation: _add, KeyContinuity: take_link},
        part="decisions",
        others=(AgreementDefinition,),
        lift=_lift,
        monoid=AGREEMENT_MONOID,
    ),
    reads_signer=True,
    table=_TABLE,
)
