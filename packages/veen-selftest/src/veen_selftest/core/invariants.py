"""The core invariants (§7): accepted messages satisfy them, and messages that violate one are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from veen_core import attachment, hub_identity, rejection
from veen_core.errors import InvariantError
from veen_core.hashing import H
from veen_core.ids import Coid
from veen_core.keys import DhKey, DhSecret
from veen_core.log_rules import step_of
from veen_core.msg import Msg
from veen_core.rejection import Rejection
from veen_selftest.core import faults
from veen_selftest.core.attachments import or_refused, within
from veen_selftest.hubs.http_hub import HttpHub, require_refused_by
from veen_selftest.peers.verifier import VerifiedLog, read_entries
from veen_selftest.peers.writer import Writer, ciphertext_layout
from veen_selftest.runner.check import Check, require, require_equal, require_one
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import PLAIN, ROTATING, HubSetup


def _some_log(context: CheckContext, setup: HubSetup = PLAIN) -> tuple[HttpHub, Writer]:
    """Write a log with two writers, single messages and batches; returns one of the writers."""
    hub = context.hub(setup)
    writers = [context.writer(hub, name) for name in ("alice", "bob")]
    for turn in range(3):
        hub.accept(writers[turn % 2].next())
        hub.accept_many([writer.next() for writer in writers])
    return hub, writers[0]


def _verify_invariant(name: str, writer: Writer) -> bytes:
    """Check that no entry of the log breaks this rule; return the root at the end."""
    log = VerifiedLog(writer.hub, writer.label, writer.stream_id)
    for entry in read_entries(writer.hub, writer.label):
        try:
            log.add(entry)
        except InvariantError as exc:
            require(exc.invariant != name, str(exc))
            log.verifier.follow(step_of(entry.receipt, entry.msg))
    require(log.tree.size, "the log is empty")
    return log.tree.root


def _satisfied(name: str, broken_by: tuple[Rejection, ...]) -> Callable[[CheckContext], None]:
    """Make a check: every entry satisfies the invariant, and requests that violate it are refused."""

    def run(context: CheckContext) -> None:
        hub, writer = _some_log(context)
        root = _verify_invariant(name, writer)
        for row in broken_by:
            require_refused_by(row, faults.play(context, hub, [row]))
        require_equal(_verify_invariant(name, writer), root, "the root of the log after refusals")

    return run


def _i5(context: CheckContext) -> None:
    """A reader that opens a message gets the attachments that its att_root commits to (core §4.6)."""
    hub = context.hub()
    writer = context.writer(hub)
    reader = DhKey(DhSecret(H(context.secret + b"reader")))
    contents = within(hub, [b"one", b"two" * 500, b""])
    sealed = writer.seal(reader.public, b"see attached", contents)
    for part in sealed.attachments:
        answer = hub.call(
            "PUT", f"/v1/attachment/{part.coid.hex()}", part.ciphertext, writer.attachment_headers(part.coid)
        )
        require_equal(answer.status, 200, "status of an attachment's put")
    hub.accept(sealed.wire)
    held = require_one(hub.read_all(writer.label), "entries of a log of one").msg
    opened = Msg.decode(held.encode()).open(reader, hub.known.limits)
    fetched = [hub.get(f"/v1/attachment/{part.coid.hex()}").body for part in sealed.attachments]
    coids = [Coid(H(ciphertext)) for ciphertext in fetched]
    sizes = [len(ciphertext) for ciphertext in fetched]
    attachment.check_attachments(opened.header.att_root, coids, sizes, hub.known.limits)
    for index, (ciphertext, content) in enumerate(zip(fetched, contents, strict=True)):
        require_equal(opened.attachment(index, ciphertext), content, f"attachment {index} when opened")


def _i7(context: CheckContext) -> None:
    """Accepted messages stay within the token's rate, recomputed from the receipts alone (H8)."""
    hub = context.hub()
    rate = hub.rate(2, 3)
    writer = context.writer_without_token(hub).authorized(rate=rate)
    hub.submit_many(writer.many(10))
    stamps = [pair.receipt.hub_ts for pair in read_entries(hub, writer.label)]
    for position, stamp in enumerate(stamps):
        allowed = rate.burst + rate.per_sec * (stamp - stamps[0])
        require(position < allowed, f"message {position + 1} at {stamp} exceeds {rate} (I7, H8)")
    require(len(stamps) >= rate.burst, f"only {len(stamps)} of a burst of {rate.burst} were accepted")


def _i11(context: CheckContext) -> None:
    """The largest message is accepted, one byte more is refused; inner lengths are bounded too."""
    hub = context.hub()
    limits = hub.known.limits
    writer = context.writer(hub)
    room = _room(writer, limits.max_msg_bytes)
    hub.accept(writer.next(ciphertext=ciphertext_layout(bytes(min(room, limits.max_body_bytes)))))
    over = writer.message(2, ciphertext=ciphertext_layout(bytes(room)) + bytes(1))
    require_equal(len(over), limits.max_msg_bytes + 1, "the check's own arithmetic")
    require_refused_by(rejection.FIELD_SIZE, hub.submit(over))
    for header, body in ((limits.max_hdr_bytes + 1, 0), (0, limits.max_body_bytes + 1), (10, 10)):
        lengths = header.to_bytes(4, "big") + body.to_bytes(4, "big")
        require_refused_by(
            rejection.FIELD_SIZE, hub.submit(writer.message(2, ciphertext=bytes(32) + lengths))
        )
    require_refused_by(
        rejection.FIELD_SIZE, hub.submit(writer.message(2, ciphertext=ciphertext_layout(b"x") + b"\x00\x01"))
    )


def _room(writer: Writer, size: int) -> int:
    """Return the body size with which a message has ``size`` bytes, its length fields included."""
    body = size // 2
    while more := size - len(writer.message(2, ciphertext=ciphertext_layout(bytes(body)))):
        body += more
    return body


def _i12(context: CheckContext) -> None:
    """The label of each accepted message belongs to an epoch within the skew of hub_ts (core §12)."""
    hub, writer = _some_log(context, ROTATING)
    _verify_invariant("I12", writer)
    epoch = hub.status().epoch
    outside = context.writer(hub, on="outside", epoch=epoch + 4)
    require_refused_by(rejection.EPOCH, hub.submit(outside.next()))


def _signatures(context: CheckContext) -> None:
    """Every receipt is signed by a hub key that was active at its hub_ts (core §4.3, §8.4)."""
    hub, writer = _some_log(context)
    for pair in read_entries(hub, writer.label):
        hub_identity.verify_receipt(hub.known.identity, pair.receipt)
        asked = hub.status().hub_ts
        require(pair.receipt.hub_ts <= asked + 1, f"hub_ts {pair.receipt.hub_ts} is ahead of {asked}")


def _invariant_check(name: str, about: str, *broken_by: Rejection) -> Check:
    return Check(f"invariant.{name}", f"core §7 {name}", _satisfied(name, broken_by), about)


CHECKS: Final = (
    _invariant_check("I1", "H(ciphertext) equals ct_hash.", rejection.CT_HASH),
    _invariant_check("I2", "leaf_hash follows from the MSG.", rejection.SIG_INVALID),
    _invariant_check("I3", "mmr_root is the root of the log including this leaf."),
    _invariant_check("I4", "profile_id is supported by the hub.", rejection.PROFILE),
    Check("invariant.I5", "core §7 I5", or_refused(_i5)),
    _invariant_check("I6", "prev_ack is not greater than the last stream_seq.", rejection.PREV_ACK),
    Check("invariant.I7", "core §7 I7", _i7),
    _invariant_check("I8", "(label, client_id, client_seq) is unique.", rejection.DUPLICATE),
    _invariant_check("I9", "client_seq increases by exactly 1.", rejection.CLIENT_SEQ),
    _invariant_check("I10", "Only canonical CBOR is accepted.", rejection.CBOR_INVALID),
    Check("invariant.I11", "core §7 I11, §14.2", _i11),
    Check("invariant.I12", "core §7 I12", _i12),
    Check("invariant.signatures", "core §4.3, §8.4", _signatures),
)
