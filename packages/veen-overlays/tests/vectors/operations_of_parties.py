"""Make the vectors of agreements, publications and recoveries, or check the files.

    python packages/veen-overlays/tests/vectors/operations_of_parties.py            writes
    python packages/veen-overlays/tests/vectors/operations_of_parties.py --check    1 if anything differs

A file in ``operations_of_parties`` has the cases of one record: the body in hex with its JSON value, or with
text of the error that it causes. ``content_root.json`` has files with their root, or with text of the error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import cbor2
from vector_files import as_json, json_files, run

from veen_core.errors import EncodeError
from veen_core.hashing import H
from veen_core.ids import AttRoot, OperationId, UnixTime
from veen_overlays.operations.agreement import (
    AgreementConfirmation,
    AgreementDefinition,
    TermsHash,
    agreement_id,
)
from veen_overlays.operations.content_root import PublishedFile, content_root
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.publication import DataPublication, publication_id
from veen_overlays.operations.recovery_records import (
    RecoveryApproval,
    RecoveryExecution,
    RecoveryPolicy,
    RecoveryRequest,
)
from veen_overlays.schema.record import Record

FOLDER: Final = Path(__file__).resolve().parent / "operations_of_parties"
ANN, BOB, CAY = (IdentityId(bytes([n]) * 32) for n in (1, 2, 3))
AT = UnixTime(1_700_000_000)
PARENT = OperationId(b"\x77" * 32)
FILES = [PublishedFile(name, H(name.encode())) for name in ("a.csv", "sub/b.csv", "ключ", "z")]

GOOD: Final[dict[str, Record]] = {
    "agreement.definition.v1 all": AgreementDefinition(
        agreement_id=agreement_id("lease"),
        version=2,
        terms_hash=TermsHash(H(b"terms")),
        terms_attachment_root=AttRoot(b"\x11" * 32),
        parties=(ANN, BOB),
        effective_time=AT,
        expiry_time=UnixTime(AT + 1),
        metadata={"place": "Basel"},
    ),
    "agreement.definition.v1 required": AgreementDefinition(
        agreement_id=agreement_id("lease"), version=0, terms_hash=TermsHash(H(b"terms")), parties=(ANN,)
    ),
    "agreement.confirmation.v1 all": AgreementConfirmation(
        agreement_id=agreement_id("lease"),
        version=2,
        party_identity=ANN,
        decision="accept",
        decision_time=AT,
        parent_operation_id=PARENT,
        metadata=[1, None],
    ),
    "agreement.confirmation.v1 required": AgreementConfirmation(
        agreement_id=agreement_id("lease"), version=2, party_identity=ANN, decision="withdraw"
    ),
    "data.publication.v1 all": DataPublication(
        publication_id=publication_id("rates"),
        publisher_identity=ANN,
        content_root=content_root(FILES),
        content_class="dataset",
        version="v1.2.0",
        labels=("fx", "rates"),
        source_uri="https://example.org/rates",
        metadata={"rows": 3},
    ),
    "data.publication.v1 required": DataPublication(
        publication_id=publication_id("rates"),
        publisher_identity=ANN,
        content_root=content_root(FILES[:1]),
        content_class="dataset",
        version="2025-11-13T12:00Z",
    ),
    "id.recovery.policy.v1 all": RecoveryPolicy(
        target_identity=ANN, guardians=(BOB, CAY), threshold=2, executors=(CAY,), updated_at=AT
    ),
    "id.recovery.policy.v1 required": RecoveryPolicy(
        target_identity=ANN, guardians=(BOB,), threshold=1, updated_at=AT
    ),
    "recovery.request.v1 all": RecoveryRequest(
        target_identity=ANN, requested_new_identity=BOB, reason="lost", request_time=AT, metadata="m"
    ),
    "recovery.request.v1 required": RecoveryRequest(target_identity=ANN, requested_new_identity=BOB),
    "recovery.approval.v1 all": RecoveryApproval(
        target_identity=ANN,
        requested_new_identity=BOB,
        approver_identity=CAY,
        policy_group_id=RecoveryPolicy(
            target_identity=ANN, guardians=(CAY,), threshold=1, updated_at=AT
        ).group_id,
        decision="approve",
        decision_time=AT,
        parent_operation_id=PARENT,
        metadata={},
    ),
    "recovery.approval.v1 required": RecoveryApproval(
        target_identity=ANN, requested_new_identity=BOB, approver_identity=CAY, decision="reject"
    ),
    "recovery.execution.v1 all": RecoveryExecution(
        target_identity=ANN,
        new_identity=BOB,
        applied_time=AT,
        approval_references=(PARENT, OperationId(b"\x66" * 32)),
        metadata=0,
    ),
    "recovery.execution.v1 required": RecoveryExecution(
        target_identity=ANN, new_identity=BOB, approval_references=(PARENT,)
    ),
}
SHAPES: Final[dict[str, type[Record]]] = {each.NAME: type(each) for each in GOOD.values()}

BAD: Final[dict[str, dict[str, tuple[dict[str, Any], str]]]] = {
    "agreement.definition.v1": {
        "no party": ({"parties": []}, "at least one party"),
        "parties unsorted": ({"parties": [bytes(BOB), bytes(ANN)]}, "sorted"),
        "party twice": ({"parties": [bytes(ANN), bytes(ANN)]}, "sorted"),
        "expires before it starts": ({"expiry_time": AT - 1}, "after effective_time"),
        "version negative": ({"version": -1}, "version"),
        "terms_hash short": ({"terms_hash": bytes(31)}, "terms_hash"),
        "effective_time null": ({"effective_time": None}, "effective_time"),
        "metadata float": ({"metadata": 1.5}, "floats"),
    },
    "agreement.confirmation.v1": {
        "decision bytes": ({"decision": b"accept"}, "decision"),
        "party_identity short": ({"party_identity": bytes(31)}, "party_identity"),
        "unknown key": ({"vote": 1}, "unknown key"),
    },
    "data.publication.v1": {
        "version empty": ({"version": ""}, "version is not empty"),
        "labels unsorted": ({"labels": ["b", "a"]}, "sorted"),
        "content_root text": ({"content_root": "root"}, "content_root"),
    },
    "id.recovery.policy.v1": {
        "threshold too high": ({"threshold": 3}, "number of guardians"),
        "threshold zero": ({"threshold": 0}, "number of guardians"),
        "own guardian": ({"guardians": [bytes(ANN), bytes(BOB)]}, "own guardian"),
        "guardians unsorted": ({"guardians": [bytes(CAY), bytes(BOB)]}, "sorted"),
        "executors unsorted": ({"executors": [bytes(CAY), bytes(BOB)]}, "sorted"),
    },
    "recovery.request.v1": {"same identity": ({"requested_new_identity": bytes(ANN)}, "not target_identity")},
    "recovery.approval.v1": {
        "same identity": ({"requested_new_identity": bytes(ANN)}, "not target_identity"),
        "decision missing": ({"decision": ...}, "decision"),
    },
    "recovery.execution.v1": {
        "same identity": ({"new_identity": bytes(ANN)}, "not target_identity"),
        "no reference": ({"approval_references": []}, "at least one approval"),
        "reference twice": ({"approval_references": [bytes(PARENT)] * 2}, "twice"),
        "reference short": ({"approval_references": [bytes(31)]}, "approval_references"),
    },
}
"""For each record: changes of the full record (``...`` leaves a field out), and text of the error."""

BAD_FILES: Final[dict[str, list[tuple[str, bytes]]]] = {
    "no file": [],
    "absolute": [("/etc/passwd", bytes(32))],
    "parent folder": [("../a", bytes(32))],
    "empty part": [("a//b", bytes(32))],
    "two with one name": [("a", bytes(32)), ("a", b"\x01" * 32)],
    "hash short": [("a", bytes(31))],
}


def _bad(name: str) -> dict[str, Any]:
    whole: Any = cbor2.loads(GOOD[f"{name} all"].encode())
    found = {}
    for case, (changes, text) in BAD[name].items():
        item = {key: value for key, value in (whole | changes).items() if value is not ...}
        found[case] = {"wire": cbor2.dumps(item).hex(), "match": text}
    body = GOOD[f"{name} all"].encode()
    found["keys misordered"] = {"wire": cbor2.dumps(dict(reversed(whole.items()))).hex(), "match": "order"}
    found["trailing byte"] = {"wire": (body + b"\x00").hex(), "match": "after the item"}
    return found


def _files(files: list[PublishedFile] | list[tuple[str, bytes]]) -> list[list[str]]:
    return [[name, digest.hex()] for name, digest in files]


def _refusal(files: list[tuple[str, bytes]]) -> str:
    try:
        content_root(PublishedFile(*file) for file in files)
    except EncodeError as exc:
        return str(exc)
    raise AssertionError(f"{files} must be refused")


def make() -> dict[str, bytes]:
    """Name and content of every file."""
    made: dict[str, Any] = {}
    for name in SHAPES:
        good = {case: GOOD[f"{name} {case}"] for case in ("all", "required")}
        made[name] = {
            "good": {
                case: {"wire": each.encode().hex(), "value": each.codec.write_json(each)}
                for case, each in good.items()
            },
            "bad": _bad(name),
        }
    made["content_root"] = {
        "good": {
            f"{n} files": {"files": _files(FILES[:n]), "root": content_root(FILES[:n]).hex()}
            for n in range(1, len(FILES) + 1)
        },
        "bad": {
            case: {"files": _files(files), "match": _refusal(files)} for case, files in BAD_FILES.items()
        },
    }
    return {f"{name}.json": as_json(value) for name, value in made.items()}


def on_disk() -> dict[str, bytes]:
    """Name and content of every file."""
    return json_files(FOLDER)


if __name__ == "__main__":
    raise SystemExit(run(FOLDER, make(), on_disk(), sys.argv[1:]))
