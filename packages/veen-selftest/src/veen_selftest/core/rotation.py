"""Key rotation, restart and identity: one hub before and after (§8.4, KEX0.1, §12, H3)."""

from __future__ import annotations

import time
from typing import Final

from veen_core import hub_identity, stream
from veen_core.checkpoint import verify_witnesses
from veen_core.ids import StreamSeq
from veen_core.status import Status
from veen_selftest.core.checkpoints import fetch, make
from veen_selftest.hubs.http_hub import Hub
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.runner.check import Check, Violation, only, require, same
from veen_selftest.runner.context import Bench

WINDOW: Final = 600


def _identity(bench: Bench) -> None:
    """The identity that the hub shows chains to its hub_id and is signed; labels follow from it (§8.4)."""
    status = bench.hub().status()
    check_identity(status)
    routing_key = stream.routing_key(status.identity.hub_id)
    same(status.control_label, stream.control_label(routing_key), "control_label (H5)")
    require(status.identity.active_at(status.hub_ts), "no key of the hub is active now (§8.4)")


def check_identity(status: Status) -> None:
    hub_identity.verify_identity(status.identity)
    hub_identity.verify_identity_signature(status.identity, status.identity_sig)


def _restart(bench: Bench) -> None:
    """A restart changes nothing: identity, receipts, cursors, and hub_ts goes on (§12, H3)."""
    own = bench.own()
    writer = bench.writer(own.start())
    before = writer.hub.status()
    receipts = writer.hub.accept_many(writer.many(5))
    same(own.stop(), 0, "exit code of a hub that was asked to stop")
    writer.hub = own.start()
    after = writer.hub.status()
    same(
        (after.identity, after.profile, after.limits),
        (before.identity, before.profile, before.limits),
        "who it is",
    )
    shown = VerifiedLog(writer.hub, writer.label, writer.stream_id).read()
    same([pair.receipt for pair in shown.pairs], receipts, "receipts after a restart")
    later = writer.hub.accept(writer.next())
    same(later.stream_seq, 6, "the next stream_seq")
    require(later.hub_ts >= receipts[-1].hub_ts, "hub_ts went back over a restart (H3)")
    own.stop()


def _rotation(bench: Bench) -> None:
    """A new key takes over, endorsed by the old; old receipts stay valid, checkpoints carry both (KEX0.1)."""
    own = bench.own()
    writer = bench.writer(own.start())
    held = writer.hub.status()
    old = writer.hub.accept_many(writer.many(3))
    make(writer.hub, writer.label)
    own.stop()
    own.rotate(WINDOW)
    writer.hub = _when_valid(own)
    shown = writer.hub.status()
    hub_identity.verify_successor(held.identity, shown.identity, shown.identity_sig)
    same(shown.identity.hub_id, held.identity.hub_id, "hub_id after a rotation (B13)")
    same(len(shown.identity.hub_keys), 2, "keys after a rotation")
    first, second = shown.identity.hub_keys
    new = writer.hub.accept(writer.next())
    same(hub_identity.verify_receipt(shown.identity, new).hub_pk, second.hub_pk, "the key that signs now")
    for receipt in old:
        same(hub_identity.verify_receipt(shown.identity, receipt).hub_pk, first.hub_pk, "the key of before")
    log = VerifiedLog(writer.hub, writer.label, writer.stream_id).read()
    same(log.tree.size, StreamSeq(4), "entries over a rotation")
    made = only(make(writer.hub, writer.label), "checkpoints of one label")
    hub_identity.verify_checkpoint(shown.identity, made, shown.profile.epoch_sec)
    verify_witnesses(made, [first.hub_pk, second.hub_pk])
    same(fetch(writer.hub, writer.label, 3).witness_sigs, None, "witnesses of a checkpoint before")
    own.stop()


def _when_valid(own: OwnHub) -> Hub:
    """The new key is valid from the next second on."""
    hub = own.start()
    deadline = time.monotonic() + 5
    while True:
        status = hub.status()
        if status.hub_ts >= status.identity.newest.valid_from:
            return hub
        if time.monotonic() > deadline:
            raise Violation("the new key does not become valid (§8.4)")
        time.sleep(0.1)


CHECKS: Final = (
    Check("identity.chain", "§8.4, B13", _identity),
    Check("identity.restart", "§12, H3", _restart),
    Check("identity.rotation", "§8.4, KEX0.1", _rotation),
)
