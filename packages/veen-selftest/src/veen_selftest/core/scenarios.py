"""Conformance scenarios A to D (spec-1 §20)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from veen_core import hub_identity, rejection, stream
from veen_core.api import ErrorEnvelope
from veen_core.cap import resign
from veen_core.checkpoint import Checkpoint, LabelOrigin, check_transition
from veen_core.entry import authorize_leaf
from veen_core.ids import Label
from veen_core.receipt import Receipt
from veen_core.status import CheckpointsResponse, LabelRequest
from veen_selftest.hubs.http_hub import HttpHub, require_refused_by
from veen_selftest.peers.verifier import VerifiedLog, verify_entries
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Check, ClauseViolation, require, require_equal, require_one
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import ROTATING


def _a(context: CheckContext) -> None:
    """A: with one writer on a label, the log holds exactly the acknowledged messages, in order."""
    hub = context.hub()
    writer = context.writer(hub)
    wires: list[bytes] = []
    receipts: list[Receipt] = []
    for _ in range(9):
        wires.append(writer.next(prev_ack=len(receipts)))
        receipts.append(hub.accept(wires[-1]))
    more = writer.many(24)
    wires += more
    receipts += hub.accept_many(more)
    sent = verify_entries(hub, writer.label, wires, receipts)
    shown = VerifiedLog(hub, writer.label, writer.stream_id).read()
    require_equal(len(shown.entries), len(wires), "entries in the log")
    for mine, theirs in zip(sent.entries, shown.entries, strict=True):
        require_equal(theirs.msg_bytes, mine.msg_bytes, "a MSG that is read back")
        require_equal(theirs.receipt_bytes, mine.receipt_bytes, "a RECEIPT that is read back")


def _b(context: CheckContext) -> None:
    """B: with concurrent writers, each message is in the log once and in order; replays are refused."""
    hub = context.hub()
    writers = [context.writer(hub, name) for name in ("alice", "bob", "carol")]
    with ThreadPoolExecutor(len(writers)) as pool:
        sent = list(pool.map(lambda writer: _send(hub, writer, 12), writers))
    log = VerifiedLog(hub, writers[0].label, writers[0].stream_id).read()
    require_equal(len(log.entries), 36, "entries of three writers")
    acknowledged = {receipt.stream_seq: (wire, receipt) for lane in sent for wire, receipt in lane}
    require_equal(len(acknowledged), 36, "stream_seqs that were acknowledged")
    for pair in log.entries:
        wire, receipt = acknowledged[pair.receipt.stream_seq]
        require_equal(
            (pair.msg_bytes, pair.receipt), (wire, receipt), "an entry and the receipt that its writer got"
        )
    for lane in sent:
        for wire, _receipt in lane:
            require_refused_by(rejection.DUPLICATE, hub.submit(wire))
    for outcome in hub.submit_many([wire for wire, _receipt in sent[0]]):
        require(isinstance(outcome, ErrorEnvelope), "a replay in a sequence was accepted (I8)")


def _send(hub: HttpHub, writer: Writer, count: int) -> list[tuple[bytes, Receipt]]:
    singles = [(wire, hub.accept(wire)) for wire in writer.many(count // 2)]
    together = writer.many(count - count // 2)
    return [*singles, *zip(together, hub.accept_many(together), strict=True)]


def _c(context: CheckContext) -> None:
    """C: the first checkpoint of each epoch's label names the label of the epoch before."""
    hub = context.hub(ROTATING)
    for _attempt in range(2):  # repeat if the epoch ended during the attempt
        now = hub.status().epoch
        writers = [context.writer(hub, epoch=now + offset, on=f"log {now}") for offset in (-1, 0, 1)]
        made = [_checkpointed(hub, writer) for writer in writers]
        if hub.status().epoch == now:
            break
    else:
        raise ClauseViolation("the epoch ended during both attempts of this check (core §3.2)")
    origin = LabelOrigin(
        routing_key=stream.routing_key(hub.known.identity.hub_id),
        stream_id=writers[0].stream_id,
        epoch_sec=hub.known.profile.epoch_sec,
        max_skew_sec=hub.known.limits.max_epoch_skew_sec,
    )
    before: Label = origin.label_at(now - 2)
    for writer, (checkpoint, log) in zip(writers, made, strict=True):
        last = log.entries[-1].receipt.hub_ts
        check_transition(checkpoint, log.tree, origin=origin, hub_ts=last)
        hub_identity.verify_checkpoint(hub.known.identity, checkpoint, hub.known.profile.epoch_sec)
        require_equal(
            checkpoint.label_prev, before, "label_prev of a label's first checkpoint (core §4.4.1, H9)"
        )
        require_equal(checkpoint.label_curr, writer.label, "label_curr")
        before = writer.label


def _checkpointed(hub: HttpHub, writer: Writer) -> tuple[Checkpoint, VerifiedLog]:
    hub.accept_many(writer.many(3))
    order = LabelRequest(label=writer.label).encode()
    made = hub.admin_post("/tooling/checkpoint", order).read(CheckpointsResponse).checkpoints
    return require_one(made, "checkpoints of one label"), VerifiedLog(
        hub, writer.label, writer.stream_id
    ).read()


def _d(context: CheckContext) -> None:
    """D: a token with several signatures is authorized with a receipt and limits the rate of messages."""
    hub = context.hub()
    writer = context.writer_without_token(hub)
    rate = hub.rate(1, 4)
    token = writer.token(rate=rate)
    assert hub.admin is not None
    token = resign(hub.admin, resign(hub.admin, token))
    writer.auth_ref = token.auth_ref
    if hub.known.gating:
        require_refused_by(rejection.CAP_MISSING, hub.submit(writer.message(1)))
    given = hub.authorize(token)
    require_equal(given.auth_ref, token.auth_ref, "auth_ref of an authorization (core §6)")
    require_equal(given.receipt.label, hub.known.control_label, "the label of an authorization (H5)")
    require_equal(
        given.receipt.leaf_hash,
        authorize_leaf(token.auth_ref, token.encode()),
        "leaf_hash of an authorization (H5)",
    )
    hub_identity.verify_receipt(hub.known.identity, given.receipt)
    outcomes = hub.submit_many(writer.many(12))
    accepted = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    require(
        rate.burst <= len(accepted) <= rate.burst + 4,
        f"the hub accepted {len(accepted)} of 12 messages at once under a burst of {rate.burst} (RL0, H8)",
    )
    writer.seq = len(accepted)
    answer = hub.submit(writer.message(writer.seq + 1))
    if answer.status != 200:  # the bucket may have been refilled
        require_refused_by(rejection.CAP_RATE, answer)
        require("retry-after" in answer.headers, "E.RATE without Retry-After (OP0.3)")


CHECKS: Final = (
    Check("scenario.A", "spec-1 §20 A", _a),
    Check("scenario.B", "spec-1 §20 B", _b),
    Check("scenario.C", "spec-1 §20 C", _c),
    Check("scenario.D", "spec-1 §20 D", _d),
)
