"""A completed recovery is a row in Spark; random records seldom complete one (spec-3 8.3)."""

from __future__ import annotations

from collections.abc import Callable

from veen_core.ids import UnixTime
from veen_core.msg import operation_id
from veen_overlays.live import open_entry
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.recovery import RECOVERIES
from veen_overlays.operations.recovery_records import (
    APPROVE,
    RecoveryApproval,
    RecoveryExecution,
    RecoveryPolicy,
    RecoveryRequest,
)
from veen_spark.fold.ranges import record_batch
from veen_spark.fold.states import state_rows, state_schema

from .frames import entries
from .logs import Hub, reader_key, signing_key


def test_a_replaced_identity_is_a_row(make_hub: Callable[..., Hub]) -> None:
    """The table of recoveries, which random records seldom complete (spec-3 8.3)."""
    hub = make_hub("recovered")
    target, guardian, new = (IdentityId(bytes(signing_key(who).public)) for who in ("alice", "bob", "carol"))
    both = {"target_identity": target, "requested_new_identity": new}
    policy = RecoveryPolicy(
        target_identity=target, guardians=(guardian,), threshold=1, updated_at=UnixTime(1)
    )
    hub.send_records("lost", [policy], who="alice")
    hub.send_records("lost", [RecoveryRequest(**both)], who="carol")
    approval = RecoveryApproval(**both, approver_identity=guardian, decision=APPROVE)
    (receipt,) = hub.send_records("lost", [approval], who="bob")
    named = (operation_id(receipt.leaf_hash),)
    execution = RecoveryExecution(target_identity=target, new_identity=new, approval_references=named)
    hub.send_records("lost", [execution], who="carol")
    key = reader_key("lost")
    summary = RECOVERIES.fold(open_entry(entry, entry.receipt, key) for entry in entries(hub, "lost"))
    rows = list(state_rows(RECOVERIES, RECOVERIES.view(summary.inner)))
    assert rows == [(target, new)]
    batch = record_batch([(b"label", 4, b"root", *rows[0])], state_schema(RECOVERIES))
    assert batch.num_rows == 1
