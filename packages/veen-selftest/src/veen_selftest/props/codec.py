"""Deterministic CBOR over the wire: one value, one encoding, in and out (§3.1, B3, TS0.1, TS0.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from veen_core import cbor, rejection
from veen_core.api import StreamRequest, SubmitRequest, SubmitResponse
from veen_core.ids import StreamSeq
from veen_core.limits import Limits
from veen_core.msg import Msg
from veen_selftest.hubs.http_hub import JSON, refused_by
from veen_selftest.peers.verifier import shown
from veen_selftest.peers.writer import laid_out
from veen_selftest.runner.check import Check, Violation, only, require, same
from veen_selftest.runner.context import Bench

TRIES: Final = 40
AROUND: Final = 400
"""Bytes of a message that are not its body, at most."""


def _body(bench: Bench, limits: Limits) -> bytes:
    """Of any length that is taken, around those where the encoding of a length changes."""
    near = bench.chance.choice([0, 23, 24, 200, 255, 256, 4_000, 65_535, 65_536])
    size = max(0, near - 40 + bench.chance.randint(-3, 3))
    return laid_out(bench.chance.randbytes(min(size, limits.max_body_bytes, limits.max_msg_bytes - AROUND)))


def _round_trip(bench: Bench) -> None:
    """Whatever was accepted is read back byte for byte, and every answer is canonical."""
    hub = bench.hub()
    writer = bench.writer(hub)
    wires = [writer.next(ciphertext=_body(bench, hub.known.limits)) for _ in range(TRIES)]
    receipts = hub.accept_many(wires, together=7)
    pairs = list(shown(hub, writer.label))
    same([pair.msg_bytes for pair in pairs], wires, "messages that are read back")
    same([pair.receipt for pair in pairs], receipts, "receipts that are read back")
    page = StreamRequest(label=writer.label, from_seq=StreamSeq(1), with_receipts=True, with_mmr_proof=True)
    answer: Any = cbor.decode(hub.post("/v1/stream", page).body)  # raises unless canonical
    found = [cbor.encode(item[2]) for item in answer[5]]
    same(found, wires[: hub.known.max_page_items], "messages as they lie in the answer")


AUTH_REF_AT: Final = 1 + 1 + 3 * 34 + 1 + 1
"""Where auth_ref begins: after the array's head, ver, three ids and two small counters."""
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
"""The same message, or nearly, in bytes that are not its canonical ones."""


def _unique(bench: Bench) -> None:
    """A message has one encoding: any other form of it is refused as invalid CBOR."""
    hub = bench.hub()
    writer = bench.writer(hub)
    for name, recode in OTHER_FORMS.items():
        answer = hub.submit(recode(writer.message(1)))
        require(answer.status != 200, f"{name} was accepted (B3)")
        refused_by(rejection.CBOR_INVALID, answer)
    bare = writer.message(1, auth_ref=None)
    same(bare[AUTH_REF_AT], NULL, "the check's own bytes: a null where auth_ref would be")
    undefined = bare[:AUTH_REF_AT] + b"\xf7" + bare[AUTH_REF_AT + 1 :]
    refused_by(rejection.CBOR_INVALID, hub.submit(undefined))
    hub.accept(writer.message(1))


def _bit_flips(bench: Bench) -> None:
    """A message with any bit flipped is refused, and the log does not notice."""
    hub = bench.hub()
    writer = bench.writer(hub)
    wire = writer.message(1)
    flipped = []
    for _ in range(TRIES * 5):
        at, bit = bench.chance.randrange(len(wire)), 1 << bench.chance.randrange(8)
        flipped.append((at, wire[:at] + bytes([wire[at] ^ bit]) + wire[at + 1 :]))
    for at, broken in flipped:
        answer = hub.submit(broken)
        if answer.status == 200:
            raise Violation(f"accepted with a bit flipped in byte {at} of {len(wire)}: {broken.hex()}")
        require(answer.error.detail is not None, "a refusal of a message without its row (§8.2)")
    same(hub.accept(wire).stream_seq, 1, "stream_seq of the message as it was signed")


def _json(bench: Bench) -> None:
    """A message sent as JSON is the message sent as CBOR: the same leaf, the same bytes in the log."""
    hub = bench.hub()
    writer = bench.writer(hub)
    for _ in range(TRIES // 8):
        wire = writer.next(ciphertext=laid_out(bench.chance.randbytes(bench.chance.randint(0, 300))))
        msg = Msg.decode(wire)
        text = SubmitRequest(msg=msg).to_json().encode()
        receipt = hub.post("/v1/submit", text, JSON, work=[wire]).read(SubmitResponse).receipt
        same(receipt.leaf_hash, msg.leaf_hash, "leaf_hash of a message in JSON")
        item = only(hub.page(writer.label, receipt.stream_seq).items, "entries from the last one on")
        same(item.msg.encode(), wire, "its bytes in the log")


def _tokens(bench: Bench) -> None:
    """A token has one encoding too, and so one auth_ref (§6)."""
    hub = bench.hub()
    token = bench.stranger(hub).token()
    wire = token.encode()
    items: Any = cbor.decode(wire)
    others = {
        "a byte after it": wire + b"\x00",
        "an indefinite map": b"\xbf" + wire[1:] + b"\xff",
        "a long integer": wire[:2] + b"\x18\x01" + wire[3:],
        "an unknown key": cbor.encode({**items, 6: 0}),
        "null for no rate": cbor.encode({**items, 4: {**items[4], 3: None}}),
    }
    for name, other in others.items():
        require(other != wire, f"the check's own bytes: {name}")
        answer = hub.post("/tooling/authorize", other)
        require(answer.status != 200, f"a token with {name} was authorized (§6, B3)")
        refused_by(rejection.CBOR_INVALID, answer)
    same(hub.authorize(token).auth_ref, token.auth_ref, "the auth_ref of the token as it was signed")


CHECKS: Final = (
    Check("codec.round-trip", "§3.1, TS0.4", _round_trip),
    Check("codec.unique", "B3, TS0.3", _unique),
    Check("codec.bit-flips", "§4.1, §8.2", _bit_flips),
    Check("codec.json", "§10.3, B17", _json),
    Check("codec.tokens", "§6, B3", _tokens),
)
