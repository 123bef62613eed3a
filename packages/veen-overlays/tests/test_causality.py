"""Causality: the tree of operations by the parents that they name (spec-3 1.1)."""

from __future__ import annotations

from dataclasses import replace

from signed_logs import IDS, msg_id, operation_at, signed_log
from test_agreement import V1, says
from test_recovery import APPROVED, execution

from veen_core.hashing import H
from veen_core.msg import operation_id
from veen_overlays.fold.event import Message
from veen_overlays.operations.causality import OPERATIONS, CausalTree
from veen_overlays.schema.record import Record


def tree(log: list[Message]) -> CausalTree:
    found = CausalTree()
    for message in log:
        found.add(message)
    return found


def walked(found: CausalTree, seq: int) -> list[tuple[int, int, bool]]:
    start = found.at(seq)
    assert start is not None
    return [(depth, each.seq, repeated) for depth, each, repeated in found.walk(found.root(start))]


def follows(record: Record, seq: int) -> Record:
    return replace(record, parent_operation_id=operation_at(seq))  # type: ignore[call-arg]


def test_every_operation_of_the_profiles_is_known() -> None:
    names = {
        *("agreement.definition.v1", "agreement.confirmation.v1", "data.publication.v1"),
        *("recovery.request.v1", "recovery.approval.v1", "recovery.execution.v1"),
        *("state.checkpoint.v1", "query.audit.v1", "federation.mirror.v1"),
    }
    assert names <= OPERATIONS.keys()
    assert "id.recovery.policy.v1" not in OPERATIONS


def test_operations_hang_below_the_operation_that_they_name() -> None:
    accepted, _ = says(IDS[0], "accept", 1)
    log = signed_log(
        V1, (follows(accepted, 1), IDS[0]), (follows(accepted, 2), IDS[0]), (follows(accepted, 1), IDS[1])
    )
    found = tree(log)
    expected = [(0, 1, False), (1, 2, False), (2, 3, False), (1, 4, False)]
    assert all(walked(found, seq) == expected for seq in (1, 2, 3, 4))


def test_an_execution_hangs_below_each_of_its_approvals_and_is_opened_once() -> None:
    approvals = [(follows(record, 2), signer) for record, signer in APPROVED[2:]]
    found = tree(signed_log(*APPROVED[:2], *approvals, execution(3, 4)))
    assert walked(found, 5) == [(0, 2, False), (1, 3, False), (2, 5, False), (1, 4, False), (2, 5, True)]


def test_the_header_names_a_parent_if_the_payload_differs_and_a_copy_if_it_is_the_same() -> None:
    one, two, three = signed_log(V1, says(IDS[0], "accept", 1), V1)
    found = tree([one, two._replace(parent_id=one.msg_id), three._replace(parent_id=one.msg_id)])
    assert walked(found, 2) == [(0, 1, False), (1, 2, False)]
    copy = found.find(operation_at(3))
    assert copy is not None
    assert copy.seq == 1
    assert len(found.operations) == 2


def test_a_copy_of_another_stream_is_known_by_the_id_of_its_original() -> None:
    original = H(b"elsewhere")
    one, two = signed_log(V1, says(IDS[0], "accept", 1))
    follower = follows(says(IDS[0], "accept", 1)[0], 1)
    child = replace(follower, parent_operation_id=operation_id(original))  # type: ignore[call-arg]
    found = tree([one._replace(parent_id=original), two._replace(body=child.encode())])
    assert walked(found, 2) == [(0, 1, False), (1, 2, False)]
    assert found.find(operation_id(original)) == found.at(1)


def test_a_forged_circle_ends() -> None:
    original = H(b"elsewhere")
    said = follows(says(IDS[0], "accept", 1)[0], 1)
    own = replace(said, parent_operation_id=operation_id(original))  # type: ignore[call-arg]
    (message,) = signed_log((own, IDS[0]))
    found = tree([message._replace(parent_id=original)])
    assert walked(found, 1) == [(0, 1, False), (1, 1, True)]


def test_an_invalid_body_is_counted_with_its_reason() -> None:
    (message,) = signed_log(V1)
    found = tree([message._replace(body=b"\xa0"), message._replace(seq=2, msg_id=msg_id(2), schema=H(b"x"))])
    assert [seq for seq, _ in found.undecodable] == [1]
    assert not found.operations
