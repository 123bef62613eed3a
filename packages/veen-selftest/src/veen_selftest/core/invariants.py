"""The core invariants (§7): what was accepted keeps each of them, and what would break it is not accepted."""

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
from veen_selftest.core.attachments import within
from veen_selftest.hubs.http_hub import Hub, refused_by
from veen_selftest.peers.verifier import VerifiedLog, shown
from veen_selftest.peers.writer import Writer, laid_out
from veen_selftest.runner.check import Check, only, require, same
from veen_selftest.runner.context import Bench
from veen_selftest.runner.hub_setup import PLAIN, ROTATING, Setup


def _some_log(bench: Bench, setup: Setup = PLAIN) -> tuple[Hub, Writer]:
    """Two writers in turns, single and together; one of them."""
    hub = bench.hub(setup)
    writers = [bench.writer(hub, name) for name in ("alice", "bob")]
    for turn in range(3):
        hub.accept(writers[turn % 2].next())
        hub.accept_many([writer.next() for writer in writers])
    return hub, writers[0]


def _holds(name: str, writer: Writer) -> bytes:
    """Check that no entry of the log breaks this rule; return the root at the end."""
    log = VerifiedLog(writer.hub, writer.label, writer.stream_id)
    for entry in shown(writer.hub, writer.label):
        try:
            log.add(entry)
        except InvariantError as exc:
            require(exc.invariant != name, str(exc))
            log.verifier.follow(step_of(entry.receipt, entry.msg))
    require(log.tree.size, "the log is empty")
    return log.tree.root


def _kept(name: str, broken_by: tuple[Rejection, ...]) -> Callable[[Bench], None]:
    """Every accepted pair keeps it, and the requests that would break it are refused by their rows."""

    def run(bench: Bench) -> None:
        hub, writer = _some_log(bench)
        root = _holds(name, writer)
        for row in broken_by:
            refused_by(row, faults.play(bench, hub, [row]))
        same(_holds(name, writer), root, "the root of a log to which nothing was added")

    return run


def _i5(bench: Bench) -> None:
    """A reader who opens a message finds the attachments that its att_root commits to (§4.6)."""
    hub = bench.hub()
    writer = bench.writer(hub)
    reader = DhKey(DhSecret(H(bench.secret + b"reader")))
    contents = within(hub, [b"one", b"two" * 500, b""])
    sealed = writer.seal(reader.public, b"see attached", contents)
    for part in sealed.attachments:
        answer = hub.call(
            "PUT", f"/v1/attachment/{part.coid.hex()}", part.ciphertext, writer.attachment_headers(part.coid)
        )
        same(answer.status, 200, "status of an attachment's put")
    hub.accept(sealed.wire)
    held = only(hub.read_all(writer.label), "entries of a log of one").msg
    opened = Msg.decode(held.encode()).open(reader, hub.known.limits)
    fetched = [hub.get(f"/v1/attachment/{part.coid.hex()}").body for part in sealed.attachments]
    coids = [Coid(H(ciphertext)) for ciphertext in fetched]
    sizes = [len(ciphertext) for ciphertext in fetched]
    attachment.check_attachments(opened.header.att_root, coids, sizes, hub.known.limits)
    for index, (ciphertext, content) in enumerate(zip(fetched, contents, strict=True)):
        same(opened.attachment(index, ciphertext), content, f"attachment {index} when opened")


def _i7(bench: Bench) -> None:
    """What was accepted stays within the token's rate, recomputed from receipts alone (H8)."""
    hub = bench.hub()
    rate = hub.rate(2, 3)
    writer = bench.stranger(hub).authorized(rate=rate)
    hub.submit_many(writer.many(10))
    stamps = [pair.receipt.hub_ts for pair in shown(hub, writer.label)]
    for position, stamp in enumerate(stamps):
        allowed = rate.burst + rate.per_sec * (stamp - stamps[0])
        require(position < allowed, f"message {position + 1} at {stamp} exceeds {rate} (I7, H8)")
    require(len(stamps) >= rate.burst, f"only {len(stamps)} of a burst of {rate.burst} were accepted")


def _i11(bench: Bench) -> None:
    """The largest message is accepted, one byte more is not; the ciphertext's own lengths are bounds too."""
    hub = bench.hub()
    limits = hub.known.limits
    writer = bench.writer(hub)
    room = _room(writer, limits.max_msg_bytes)
    hub.accept(writer.next(ciphertext=laid_out(bytes(min(room, limits.max_body_bytes)))))
    over = writer.message(2, ciphertext=laid_out(bytes(room)) + bytes(1))
    same(len(over), limits.max_msg_bytes + 1, "the check's own arithmetic")
    refused_by(rejection.FIELD_SIZE, hub.submit(over))
    for header, body in ((limits.max_hdr_bytes + 1, 0), (0, limits.max_body_bytes + 1), (10, 10)):
        lengths = header.to_bytes(4, "big") + body.to_bytes(4, "big")
        refused_by(rejection.FIELD_SIZE, hub.submit(writer.message(2, ciphertext=bytes(32) + lengths)))
    refused_by(rejection.FIELD_SIZE, hub.submit(writer.message(2, ciphertext=laid_out(b"x") + b"\x00\x01")))


def _room(writer: Writer, size: int) -> int:
    """The body with which a message is ``size`` bytes; how long a length is written depends on it."""
    body = size // 2
    while more := size - len(writer.message(2, ciphertext=laid_out(bytes(body)))):
        body += more
    return body


def _i12(bench: Bench) -> None:
    """Labels of accepted messages are of an epoch within the skew of hub_ts (§12)."""
    hub, writer = _some_log(bench, ROTATING)
    _holds("I12", writer)
    epoch = hub.status().epoch
    outside = bench.writer(hub, on="outside", epoch=epoch + 4)
    refused_by(rejection.EPOCH, hub.submit(outside.next()))


def _signatures(bench: Bench) -> None:
    """Every receipt is signed by a key of the hub that was active at its hub_ts (§4.3, §8.4)."""
    hub, writer = _some_log(bench)
    for pair in shown(hub, writer.label):
        hub_identity.verify_receipt(hub.known.identity, pair.receipt)
        asked = hub.status().hub_ts
        require(pair.receipt.hub_ts <= asked + 1, f"hub_ts {pair.receipt.hub_ts} is ahead of {asked}")


def _kept_check(name: str, about: str, *broken_by: Rejection) -> Check:
    return Check(f"invariant.{name}", f"§7 {name}", _kept(name, broken_by), about)


CHECKS: Final = (
    _kept_check("I1", "H(ciphertext) is ct_hash", rejection.CT_HASH),
    _kept_check("I2", "leaf_hash is that of the MSG", rejection.SIG_INVALID),
    _kept_check("I3", "mmr_root is that of the log with this leaf"),
    _kept_check("I4", "profile_id is supported", rejection.PROFILE),
    Check("invariant.I5", "§7 I5", _i5),
    _kept_check("I6", "prev_ack is not ahead of the stream", rejection.PREV_ACK),
    Check("invariant.I7", "§7 I7", _i7),
    _kept_check("I8", "(label, client_id, client_seq) is unique", rejection.DUPLICATE),
    _kept_check("I9", "client_seq goes up by one", rejection.CLIENT_SEQ),
    _kept_check("I10", "only canonical bytes", rejection.CBOR_INVALID),
    Check("invariant.I11", "§7 I11, §14.2", _i11),
    Check("invariant.I12", "§7 I12", _i12),
    Check("invariant.signatures", "§4.3, §8.4", _signatures),
)
