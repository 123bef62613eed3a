"""Deterministic CBOR: each value has one encoding, in requests and responses (§3.1, B3, TS0.1, TS0.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from veen_core import cbor, rejection
from veen_core.api import StreamRequest, SubmitRequest, SubmitResponse
from veen_core.ids import StreamSeq
from veen_core.limits import Limits
from veen_core.msg import Msg
from veen_selftest.hubs.http_hub import JSON, require_refused_by
from veen_selftest.peers.verifier import read_entries
from veen_selftest.peers.writer import ciphertext_layout
from veen_selftest.runner.check import Check, ClauseViolation, require, require_equal, require_one
from veen_selftest.runner.context import CheckContext

TRIES: Final = 40
MAX_OVERHEAD_BYTES: Final = 400
"""Bytes of a message in addition to its body."""


def _body(context: CheckContext, limits: Limits) -> bytes:
    """Return a ciphertext of a random size near those where the encoding of a length changes."""
    near = context.rng.choice([0, 23, 24, 200, 255, 256, 4_000, 65_535, 65_536])
    size = max(0, near - 40 + context.rng.randint(-3, 3))
    return ciphertext_layout(
        context.rng.randbytes(min(size, limits.max_body_bytes, limits.max_msg_bytes - MAX_OVERHEAD_BYTES))
    )


def _round_trip(context: CheckContext) -> None:
    """Accepted messages are read back byte for byte, and every answer is canonical."""
    hub = context.hub()
    writer = context.writer(hub)
    wires = [writer.next(ciphertext=_body(context, hub.known.limits)) for _ in range(TRIES)]
    receipts = hub.accept_many(wires, per_request=7)
    pairs = list(read_entries(hub, writer.label))
    require_equal([pair.msg_bytes for pair in pairs], wires, "messages that are read back")
    require_equal([pair.receipt for pair in pairs], receipts, "receipts that are read back")
    page = StreamRequest(label=writer.label, from_seq=StreamSeq(1), with_receipts=True, with_mmr_proof=True)
    answer: Any = cbor.decode(hub.post("/v1/stream", page).body)  # raises unless canonical
    found = [cbor.encode(item[2]) for item in answer[5]]
    require_equal(found, wires[: hub.known.max_page_items], "messages as encoded in the answer")


AUTH_REF_AT: Final = 1 + 1 + 3 * 34 + 1 + 1
"""Offset of auth_ref: after the array's head, ver, three ids and two small counters."""
NULL: Final = 0xF6

Recoded = Callable[[bytes], bytes]
OTHER_FORMS: Final[dict[str, Recoded]] = {
    "an indefinite array": lambda wire: b"\x9f" + wire[1:] + b"\xff",
    "a long array head": lambda wire: b"\x98\x0a" + wire[1:],
    "a long integer": lambda wire: wire[:1] + b"\x18\x01" + wire[2:],
    "a longer integer": lambda wire: wire[:1] + b"\x1b" + bytes(7) + b"\x01" + wire[2:],
    "a long length": lambda wire: wire.replace(b"\x58\x20", b"\x59\x00\x20", 1),
    "an indefinite byte string": lambda wire: wire[:2] + b"\x5f" + wire[2:36] + b"\xff" + wire[36:],
    "a float": lambda wire: wire[:1] + b"\xf9\x3c\x00" + wire[2:],
    "true for one": lambda wire: wire[:1] + b"\xf5" + wire[2:],
    "a tag": lambda wire: b"\xd9\xd9\xf7" + wire,
    "text for bytes": lambda wire: wire.replace(b"\x58\x20", b"\x78\x20", 1),
    "a byte after it": lambda wire: wire + b"\x00",
    "an item too few": lambda wire: b"\x89" + wire[1:-66],
    "an item too many": lambda wire: b"\x8b" + wire[1:] + b"\x00",
}
"""Changes to a message that make its encoding non-canonical."""


def _unique(context: CheckContext) -> None:
    """A message has one encoding; every other encoding is refused as invalid CBOR."""
    hub = context.hub()
    writer = context.writer(hub)
    for name, recode in OTHER_FORMS.items():
        answer = hub.submit(recode(writer.message(1)))
        require(answer.status != 200, f"a message with {name} was accepted (B3)")
        require_refused_by(rejection.CBOR_INVALID, answer)
    bare = writer.message(1, auth_ref=None)
    require_equal(bare[AUTH_REF_AT], NULL, "the check's own bytes: a null where auth_ref would be")
    undefined = bare[:AUTH_REF_AT] + b"\xf7" + bare[AUTH_REF_AT + 1 :]
    require_refused_by(rejection.CBOR_INVALID, hub.submit(undefined))
    hub.accept(writer.message(1))


def _bit_flips(context: CheckContext) -> None:
    """A message with any bit flipped is refused, and the log stays as it was."""
    hub = context.hub()
    writer = context.writer(hub)
    wire = writer.message(1)
    flipped = []
    for _ in range(TRIES * 5):
        at, bit = context.rng.randrange(len(wire)), 1 << context.rng.randrange(8)
        flipped.append((at, wire[:at] + bytes([wire[at] ^ bit]) + wire[at + 1 :]))
    for at, broken in flipped:
        answer = hub.submit(broken)
        if answer.status == 200:
            raise ClauseViolation(
                f"a message with a bit flipped in byte {at} of {len(wire)} was accepted: {broken.hex()}"
            )
        require(answer.error.detail is not None, "the refusal of a message names no row (core §8.2)")
    require_equal(hub.accept(wire).stream_seq, 1, "stream_seq of the message as it was signed")


def _json(context: CheckContext) -> None:
    """A message sent as JSON has the same leaf and the same bytes in the log as in CBOR."""
    hub = context.hub()
    writer = context.writer(hub)
    for _ in range(TRIES // 8):
        wire = writer.next(ciphertext=ciphertext_layout(context.rng.randbytes(context.rng.randint(0, 300))))
        msg = Msg.decode(wire)
        text = SubmitRequest(msg=msg).to_json().encode()
        receipt = hub.post("/v1/submit", text, JSON, work=[wire]).read(SubmitResponse).receipt
        require_equal(receipt.leaf_hash, msg.leaf_hash, "leaf_hash of a message in JSON")
        item = require_one(
            hub.page(writer.label, receipt.stream_seq).items, "entries from the last stream_seq on"
        )
        require_equal(item.msg.encode(), wire, "bytes in the log of a message in JSON")


def _tokens(context: CheckContext) -> None:
    """A token has one encoding and therefore one auth_ref (core §6)."""
    hub = context.hub()
    token = context.writer_without_token(hub).token()
    wire = token.encode()
    items: Any = cbor.decode(wire)
    other_forms = {
        "a byte after it": wire + b"\x00",
        "an indefinite map": b"\xbf" + wire[1:] + b"\xff",
        "a long integer": wire[:2] + b"\x18\x01" + wire[3:],
        "an unknown key": cbor.encode({**items, 6: 0}),
        "null for no rate": cbor.encode({**items, 4: {**items[4], 3: None}}),
    }
    for name, other in other_forms.items():
        require(other != wire, f"the check's own bytes: {name}")
        answer = hub.post("/tooling/authorize", other)
        require(answer.status != 200, f"a token with {name} was authorized (core §6, B3)")
        require_refused_by(rejection.CBOR_INVALID, answer)
    require_equal(hub.authorize(token).auth_ref, token.auth_ref, "the auth_ref of the token as it was signed")


CHECKS: Final = (
    Check("codec.round-trip", "core §3.1, TS0.4", _round_trip),
    Check("codec.unique", "B3, TS0.3", _unique),
    Check("codec.bit-flips", "core §4.1, §8.2", _bit_flips),
    Check("codec.json", "core §10.3, B17", _json),
    Check("codec.tokens", "core §6, B3", _tokens),
)
