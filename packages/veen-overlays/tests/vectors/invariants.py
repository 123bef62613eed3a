"""Make the vectors of spec-3's invariants, or check that the files are what would be made.

    python packages/veen-overlays/tests/vectors/invariants.py            writes
    python packages/veen-overlays/tests/vectors/invariants.py --check    prints what differs; 1 if any

Most invariants of spec-3 are about a log, not about one record. ``invariants/RULE.json`` has two logs: one
that obeys the rule, and one that breaks it. Both are valid input: a log keeps everything that was sent. Each
case has the messages that an overlay folds, the state, and its hash. A broken rule has no effect in the
state; ``names`` is the text in the state that names it, for rules whose refusals the state shows.

Identities are Ed25519 keys of the seeds 01…01, 02…02 and so on; each message is signed by its identity.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import cbor2
from vector_files import as_json, json_files, run

from veen_core.hashing import H, u64be
from veen_core.ids import AuthRef, Label, LeafHash, MmrRoot, OperationId, StreamId, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.msg import operation_id
from veen_overlays.federation import MIRRORS, Mirror
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay, StateHash
from veen_overlays.operations.access import AccessGrant, AccessRevoke, cap_token
from veen_overlays.operations.agreement import (
    AGREEMENTS,
    AgreementConfirmation,
    AgreementDefinition,
    TermsHash,
    agreement_id,
)
from veen_overlays.operations.content_root import PublishedFile, content_root
from veen_overlays.operations.delegation import DelegatedExecution
from veen_overlays.operations.operation import AccountId, IdentityId
from veen_overlays.operations.overlays import ACCOUNTS, EXECUTIONS, GRANTS, PAYMENTS
from veen_overlays.operations.payment import Domain, PaidOperation
from veen_overlays.operations.publication import PUBLICATIONS, DataPublication, publication_id
from veen_overlays.operations.recovery import RECOVERIES
from veen_overlays.operations.recovery_records import (
    RecoveryApproval,
    RecoveryExecution,
    RecoveryPolicy,
    RecoveryRequest,
)
from veen_overlays.operations.results import RESULTS, Claim, Result
from veen_overlays.schema.record import Record
from veen_overlays.snapshot import SNAPSHOTS, StateCheckpoint, StateId, snapshot

FOLDER: Final = Path(__file__).resolve().parent / "invariants"
ADMIN, ANN, BOB, CAY, DAN = (IdentityId(SigningKey(SigningSeed(bytes([n]) * 32)).public) for n in range(1, 6))
NOON: Final = UnixTime(1_700_000_000)
TILL, SHOP = AccountId(b"\x0a" * 32), AccountId(b"\x0b" * 32)
STREAMS: Final = (StreamId(b"\x01" * 32), StreamId(b"\x02" * 32))
Sent = tuple[IdentityId, Record]
"""The signer of a message, and its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A log that obeys a rule or breaks it."""

    rule: str
    case: str
    overlay: Overlay[Any]
    sent: Sequence[Sent]
    breaks: bool = False
    names: str = ""
    copy_of: int | None = None
    """If given: the last message is a mirrored copy of this one."""

    def log(self) -> list[Message]:
        """The messages, one per second."""
        made = [
            Message(seq, msg_id(seq), record.SCHEMA, record.encode(), None, bytes(signer), NOON + seq)
            for seq, (signer, record) in enumerate(self.sent, 1)
        ]
        if self.copy_of is not None:
            original = made[self.copy_of - 1]
            seq = len(made) + 1
            made.append(original._replace(seq=seq, msg_id=msg_id(seq), parent_id=original.msg_id))
        return made


def msg_id(seq: int) -> bytes:
    """The MsgID of message ``seq`` of every log."""
    return H(b"invariants" + u64be(seq))


def sent_operation(seq: int) -> OperationId:
    return operation_id(msg_id(seq))


# --- the records of the logs


def domain() -> Domain:
    return Domain(authorities=(ADMIN,), negative_balances=True, grants_required=False)


PAID: Final = PaidOperation(
    operation_type="translate", operation_args={}, payer_account=TILL, payee_account=SHOP, amount=40
)


def granted(subject: IdentityId, streams: tuple[StreamId, ...] = STREAMS[:1]) -> AccessGrant:
    return AccessGrant(
        subject_identity=subject,
        allowed_stream_ids=streams,
        expiry_time=UnixTime(NOON + 100),
        maximum_amount=100,
    )


def token(issuer: IdentityId, grant: AccessGrant, seq: int) -> AuthRef:
    return cap_token(grant, issuer, NOON + seq).auth_ref


def by_agent(*chain: AuthRef, principal: IdentityId = ANN, agent: IdentityId = BOB) -> DelegatedExecution:
    return DelegatedExecution(
        principal_identity=principal,
        agent_identity=agent,
        delegation_chain=chain,
        operation_schema=PAID.SCHEMA,
        operation_body=cbor2.loads(PAID.encode()),
    )


def defined(version: int) -> AgreementDefinition:
    return AgreementDefinition(
        agreement_id=agreement_id("lease"),
        version=version,
        terms_hash=TermsHash(H(b"terms %d" % version)),
        parties=tuple(sorted((ANN, BOB))),
    )


def decided(party: IdentityId, decision: str) -> Sent:
    record = AgreementConfirmation(
        agreement_id=agreement_id("lease"), version=1, party_identity=party, decision=decision
    )
    return party, record


def published(version: str, content: bytes) -> DataPublication:
    return DataPublication(
        publication_id=publication_id("rates"),
        publisher_identity=ANN,
        content_root=content_root([PublishedFile("rates.csv", H(content))]),
        content_class="dataset",
        version=version,
    )


POLICY: Final = RecoveryPolicy(
    target_identity=ANN,
    guardians=tuple(sorted((BOB, CAY))),
    threshold=2,
    executors=(DAN,),
    updated_at=NOON,
)
ASKED: Final = RecoveryRequest(target_identity=ANN, requested_new_identity=DAN)


def approved(guardian: IdentityId, decision: str = "approve") -> Sent:
    record = RecoveryApproval(
        target_identity=ANN,
        requested_new_identity=DAN,
        approver_identity=guardian,
        decision=decision,
    )
    return guardian, record


def executed(*references: int, by: IdentityId = DAN) -> Sent:
    named = tuple(sent_operation(seq) for seq in references)
    return by, RecoveryExecution(target_identity=ANN, new_identity=DAN, approval_references=named)


def claimed(state: bytes, root: bytes = b"\x05") -> StateCheckpoint:
    return StateCheckpoint(
        state_id=StateId(b"\x06" * 32),
        upto_stream_seq=StreamSeq(9),
        mmr_root=MmrRoot(root * 32),
        state_hash=StateHash(state * 32),
        state_class="wallet.ledger",
    )


def mirrored(seq: int, at: int) -> Mirror:
    return Mirror(
        source_hub_identifier="hub.example",
        source_label=Label(b"\x07" * 32),
        source_stream_seq=StreamSeq(seq),
        source_leaf_hash=LeafHash(b"\x08" * 32),
        source_receipt_root=MmrRoot(b"\x09" * 32),
        target_label=Label(b"\x0c" * 32),
        mirror_time=UnixTime(NOON + at),
    )


# --- the logs


def _domain_cases() -> list[Case]:
    by_ann, by_bob = granted(ANN), granted(BOB)
    wide = granted(BOB, STREAMS)
    chain = (ADMIN, domain()), (ADMIN, by_ann), (ANN, by_bob)
    first, second = token(ADMIN, by_ann, 2), token(ANN, by_bob, 3)
    rules = ADMIN, domain()
    return [
        Case(rule="2.5 P1", case="two payments", overlay=ACCOUNTS, sent=[rules, (ANN, PAID), (ANN, PAID)]),
        Case(
            rule="2.5 P1",
            case="a mirrored copy of the payment",
            overlay=ACCOUNTS,
            sent=[rules, (ANN, PAID)],
            copy_of=2,
            breaks=True,
        ),
        Case(rule="A1", case="an authority grants", overlay=PAYMENTS, sent=_pay_under_grant_of(ADMIN)),
        Case(
            rule="A1",
            case="a stranger grants, and sets the rules",
            overlay=PAYMENTS,
            sent=_pay_under_grant_of(CAY),
            breaks=True,
            names="A1: issuer",
        ),
        Case(rule="A2", case="a grant", overlay=GRANTS, sent=[rules, (ADMIN, by_ann)]),
        Case(
            rule="A2",
            case="a grant and its revocation",
            overlay=GRANTS,
            sent=[rules, (ADMIN, by_ann), (ADMIN, AccessRevoke(subject_identity=ANN))],
            breaks=True,
            names="revoked_at",
        ),
        Case(
            rule="D2",
            case="a chain from an authority to the agent",
            overlay=EXECUTIONS,
            sent=[*chain, (BOB, by_agent(first, second))],
        ),
        Case(
            rule="D2",
            case="the second capability is unknown",
            overlay=EXECUTIONS,
            sent=[*chain, (BOB, by_agent(first, AuthRef(b"\x0d" * 32)))],
            breaks=True,
            names="D2: unknown capability",
        ),
        Case(
            rule="D3",
            case="the whole chain stays in the state",
            overlay=EXECUTIONS,
            sent=[*chain, (BOB, by_agent(first, second))],
        ),
        Case(
            rule="D3",
            case="the chain of a refused execution stays in the state",
            overlay=EXECUTIONS,
            sent=[
                *chain[:2],
                (ANN, wide),
                (BOB, by_agent(first, token(ANN, wide, 3))),
            ],
            breaks=True,
            names="D2: wider scope",
        ),
    ]


def _pay_under_grant_of(issuer: IdentityId) -> list[Sent]:
    """A payment by an agent under a grant of this issuer, who also tries to become an authority."""
    rules = replace(domain(), authorities=tuple(sorted((ADMIN, issuer)))) if issuer != ADMIN else domain()
    given = granted(BOB)
    execution = by_agent(token(issuer, given, 3), principal=BOB)
    return [(ADMIN, domain()), (issuer, rules), (issuer, given), (BOB, execution)]


def _other_cases() -> list[Case]:
    done = Result(operation_id=sent_operation(9), outcome="done", result="bonjour")
    again = Result(operation_id=sent_operation(9), outcome="failed", reason="a second result")
    start = (ANN, POLICY), (DAN, ASKED)
    guardians = approved(BOB), approved(CAY)
    both = *start, *guardians
    agreed = (ANN, defined(1)), decided(ANN, "accept"), decided(BOB, "accept")
    return [
        Case(
            rule="2.5 P2",
            case="a claim and a result",
            overlay=RESULTS,
            sent=[(BOB, Claim(operation_id=sent_operation(9))), (BOB, done)],
        ),
        Case(
            rule="2.5 P2",
            case="a second result of one operation",
            overlay=RESULTS,
            sent=[(BOB, Claim(operation_id=sent_operation(9))), (BOB, done), (BOB, again)],
            breaks=True,
        ),
        Case(rule="M1", case="both parties accept", overlay=AGREEMENTS, sent=agreed),
        Case(
            rule="M1",
            case="a later rejection replaces the acceptance",
            overlay=AGREEMENTS,
            sent=[*agreed, decided(BOB, "reject")],
            breaks=True,
            names="reject",
        ),
        Case(
            rule="M2", case="versions rise", overlay=AGREEMENTS, sent=[(ANN, defined(1)), (ANN, defined(2))]
        ),
        Case(
            rule="M2",
            case="a lower version after a higher one",
            overlay=AGREEMENTS,
            sent=[(ANN, defined(2)), (ANN, defined(1))],
            breaks=True,
            names='"rises": false',
        ),
        Case(
            rule="6.4 P1",
            case="two versions",
            overlay=PUBLICATIONS,
            sent=[(ANN, published("v1", b"a")), (ANN, published("v2", b"b"))],
        ),
        Case(
            rule="6.4 P1",
            case="other content under a published version",
            overlay=PUBLICATIONS,
            sent=[(ANN, published("v1", b"a")), (ANN, published("v1", b"b"))],
            breaks=True,
            names="(P1)",
        ),
        Case(rule="S1", case="one snapshot", overlay=SNAPSHOTS, sent=[(ANN, claimed(b"\x01"))]),
        Case(
            rule="S1",
            case="a second snapshot of one state and prefix",
            overlay=SNAPSHOTS,
            sent=[(ANN, claimed(b"\x01")), (ANN, claimed(b"\x02"))],
            breaks=True,
        ),
        Case(
            rule="R1", case="approvals before the execution", overlay=RECOVERIES, sent=[*both, executed(3, 4)]
        ),
        Case(
            rule="R1",
            case="an approval after the execution",
            overlay=RECOVERIES,
            sent=[*start, guardians[0], executed(3, 5), guardians[1]],
            breaks=True,
            names="R1: no approval",
        ),
        Case(rule="R2", case="every reference approves", overlay=RECOVERIES, sent=[*both, executed(3, 4)]),
        Case(
            rule="R2",
            case="a reference rejects",
            overlay=RECOVERIES,
            sent=[*start, *guardians, approved(CAY, "reject"), executed(3, 5)],
            breaks=True,
            names="R2: approval",
        ),
        Case(rule="R3", case="an executor executes", overlay=RECOVERIES, sent=[*both, executed(3, 4)]),
        Case(
            rule="R3",
            case="a guardian executes",
            overlay=RECOVERIES,
            sent=[*both, executed(3, 4, by=BOB)],
            breaks=True,
            names="R3: its sender",
        ),
        Case(
            rule="F2",
            case="two entries",
            overlay=MIRRORS,
            sent=[(CAY, mirrored(1, 1)), (CAY, mirrored(2, 2))],
        ),
        Case(
            rule="F2",
            case="a second record of one entry",
            overlay=MIRRORS,
            sent=[(CAY, mirrored(1, 1)), (CAY, mirrored(1, 2))],
            breaks=True,
            names='"repeated": 1',
        ),
    ]


def cases() -> list[Case]:
    """All logs, those of one rule together."""
    return [*_domain_cases(), *_other_cases()]


def message_item(message: Message) -> dict[str, Any]:
    """A message as JSON."""
    made: dict[str, Any] = {
        "seq": message.seq,
        "msg_id": message.msg_id.hex(),
        "schema": message.schema.hex(),
        "body": message.body.hex(),
    }
    if message.parent_id is not None:
        made["parent_id"] = message.parent_id.hex()
    assert message.client_id is not None
    return made | {"signer": message.client_id.hex(), "hub_ts": message.hub_ts}


def snapshots() -> list[dict[str, Any]]:
    """Snapshots of one log: the verifier accepts the first and refuses the others (S2)."""
    log = Case(rule="S2", case="", overlay=ACCOUNTS, sent=[(ADMIN, domain()), (ANN, PAID)]).log()
    good = snapshot(ACCOUNTS, ACCOUNTS.fold(log), StateId(b"\x06" * 32), 2, MmrRoot(b"\x05" * 32))
    made = {
        "root and state of the log": good,
        "another root": replace(good, mmr_root=MmrRoot(b"\x04" * 32)),
        "another state": replace(good, state_hash=StateHash(bytes(32))),
    }
    return [
        {
            "case": case,
            "overlay": ACCOUNTS.name,
            "breaks": each is not good,
            "names": "S2" if each is not good else "",
            "log": [message_item(message) for message in log],
            "mmr_root": good.mmr_root.hex(),
            "snapshot": each.encode().hex(),
        }
        for case, each in made.items()
    ]


def make() -> dict[str, bytes]:
    """Name and content of every file."""
    made: dict[str, list[dict[str, Any]]] = {"S2.json": snapshots()}
    for each in cases():
        log = each.log()
        summary = each.overlay.fold(log)
        item = {
            "case": each.case,
            "overlay": each.overlay.name,
            "breaks": each.breaks,
            "names": each.names,
            "log": [message_item(message) for message in log],
            "state": each.overlay.view_json(summary),
            "state_hash": each.overlay.state_hash(summary).hex(),
        }
        made.setdefault(f"{each.rule.replace(' ', '_')}.json", []).append(item)
    return {name: as_json(items) for name, items in made.items()}


def on_disk() -> dict[str, bytes]:
    """Name and content of every file."""
    return json_files(FOLDER)


if __name__ == "__main__":
    raise SystemExit(run(FOLDER, make(), on_disk(), sys.argv[1:]))
