"""Identity, restart and key rotation (§8.4, KEX0.1, §12, H3)."""

from __future__ import annotations

import time
from typing import Final

from veen_core import hub_identity, stream
from veen_core.checkpoint import verify_witnesses
from veen_core.ids import StreamSeq
from veen_core.status import Status
from veen_selftest.core.checkpoints import fetch, make
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.runner.check import Check, ClauseViolation, require, require_equal, require_one
from veen_selftest.runner.context import CheckContext

WINDOW_SECONDS: Final = 600


def _identity(context: CheckContext) -> None:
    """The hub's identity is signed, chains to its hub_id, and determines the control label (core §8.4)."""
    status = context.hub().status()
    check_identity(status)
    routing_key = stream.routing_key(status.identity.hub_id)
    require_equal(status.control_label, stream.control_label(routing_key), "control_label (H5)")
    require(status.identity.active_at(status.hub_ts), "no key of the hub is active now (core §8.4)")


def check_identity(status: Status) -> None:
    hub_identity.verify_identity(status.identity)
    hub_identity.verify_identity_signature(status.identity, status.identity_sig)


def _restart(context: CheckContext) -> None:
    """After a restart identity, receipts and cursors are the same, and hub_ts does not go back."""
    own = context.own_hub()
    writer = context.writer(own.start())
    before = writer.hub.status()
    receipts = writer.hub.accept_many(writer.many(5))
    require_equal(own.stop(), 0, "exit code of a hub that was asked to stop")
    writer.hub = own.start()
    after = writer.hub.status()
    require_equal(
        (after.identity, after.profile, after.limits),
        (before.identity, before.profile, before.limits),
        "identity, profile and limits after a restart",
    )
    shown = VerifiedLog(writer.hub, writer.label, writer.stream_id).read()
    require_equal([pair.receipt for pair in shown.entries], receipts, "receipts after a restart")
    later = writer.hub.accept(writer.next())
    require_equal(later.stream_seq, 6, "the next stream_seq")
    require(later.hub_ts >= receipts[-1].hub_ts, "hub_ts went back over a restart (H3)")
    own.stop()


def _rotation(context: CheckContext) -> None:
    """After a rotation the new key signs, old receipts stay valid, both keys sign checkpoints (KEX0.1)."""
    own = context.own_hub()
    writer = context.writer(own.start())
    held = writer.hub.status()
    old = writer.hub.accept_many(writer.many(3))
    make(writer.hub, writer.label)
    own.stop()
    own.rotate(WINDOW_SECONDS)
    writer.hub = start_when_valid(own)
    shown = writer.hub.status()
    hub_identity.verify_successor(held.identity, shown.identity, shown.identity_sig)
    require_equal(shown.identity.hub_id, held.identity.hub_id, "hub_id after a rotation (B13)")
    require_equal(len(shown.identity.hub_keys), 2, "keys after a rotation")
    first, second = shown.identity.hub_keys
    new = writer.hub.accept(writer.next())
    require_equal(
        hub_identity.verify_receipt(shown.identity, new).hub_pk, second.hub_pk, "the key that signs now"
    )
    for receipt in old:
        require_equal(
            hub_identity.verify_receipt(shown.identity, receipt).hub_pk,
            first.hub_pk,
            "the key of an old receipt",
        )
    log = VerifiedLog(writer.hub, writer.label, writer.stream_id).read()
    require_equal(log.tree.size, StreamSeq(4), "entries over a rotation")
    made = require_one(make(writer.hub, writer.label), "checkpoints of one label")
    hub_identity.verify_checkpoint(shown.identity, made, shown.profile.epoch_sec)
    verify_witnesses(made, [first.hub_pk, second.hub_pk])
    require_equal(
        fetch(writer.hub, writer.label, 3).witness_sigs, None, "witnesses of a checkpoint before the rotation"
    )
    own.stop()


def start_when_valid(own: OwnHub) -> HttpHub:
    """Start the hub and wait until the new key is valid, which takes up to a second."""
    hub = own.start()
    deadline = time.monotonic() + 5
    while True:
        status = hub.status()
        if status.hub_ts >= status.identity.newest.valid_from:
            return hub
        if time.monotonic() > deadline:
            raise ClauseViolation("the new key is not valid 5 s after the rotation (core §8.4)")
        time.sleep(0.1)


CHECKS: Final = (
    Check("identity.chain", "core §8.4, B13", _identity),
    Check("identity.restart", "core §12, H3", _restart),
    Check("identity.rotation", "core §8.4, KEX0.1", _rotation),
)
