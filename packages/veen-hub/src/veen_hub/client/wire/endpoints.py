"""The hub's API as typed calls (§10.4, H14-H17, H19): one question, one answer that fits it, or an error.

Nothing here is believed yet: signatures, roots and proofs are judged by ``label``. Nothing is tried again
here either.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final, TypeVar

from veen_core import cbor
from veen_core.api import (
    CheckpointRequest,
    CheckpointResponse,
    ConsistencyRequest,
    ConsistencyResponse,
    ControlItem,
    ControlResponse,
    ErrorEnvelope,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamItem,
    StreamRequest,
    StreamResponse,
    SubmitResponse,
    wrap_submit,
)
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.entry import FLAG_AUTHORIZE, Entry
from veen_core.errors import DecodeError
from veen_core.ids import NO_ENTRIES, AuthRef, Label, StreamId, StreamSeq
from veen_core.limits import Limits
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.status import AuthorizeResponse, CapStatus, OkResponse, Status
from veen_core.wire import Wire
from veen_hub.client.errors import BadRequest, Misbehaved, NotFound, Refused, refusal
from veen_hub.client.wire.framing import HEADS, Framer, item_end
from veen_hub.client.wire.transport import CBOR_SEQ, Transport

W = TypeVar("W", bound=Wire)
ITEM_OVERHEAD: Final = 4_096
MAX_PAGE: Final = 16 * 1_048_576
"""The hub ends a page after 8 MiB and the entry that goes beyond them."""
_RECEIPT_HEAD: Final = 0x87  # array of seven, where an error envelope has text
_ANSWER_AT: Final = 4  # after {1: 1, 2:


def decode_response(kind: type[W], body: bytes) -> W:
    """One envelope; bytes that are none are the hub's fault."""
    try:
        return kind.decode(body)
    except DecodeError as exc:
        raise Misbehaved(f"the hub's answer is not a {kind.codec.name}: {exc}") from None


class Endpoints:
    """Calls over one transport."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.control_label: Label | None = None
        """Whose entries are tokens (H5); known once the hub is."""

    async def _ask(self, path: str, question: Wire, kind: type[W]) -> W:
        return decode_response(kind, await self.transport.call("POST", path, question.encode()))

    async def status(self) -> Status:
        return decode_response(Status, await self.transport.call("GET", "/v1/status"))

    async def submit(
        self, wires: Sequence[bytes], *, headers: Mapping[str, str] | None = None
    ) -> list[Receipt | Refused]:
        """An outcome for each message, in order; the request as a whole may be refused too (H14)."""
        if len(wires) == 1:
            try:
                body = await self.transport.call("POST", "/v1/submit", wrap_submit(wires[0]), headers=headers)
            except Refused as exc:
                return [exc]
            return [decode_response(SubmitResponse, body).receipt]
        body = await self.transport.call(
            "POST", "/v1/submit", b"".join(map(wrap_submit, wires)), content_type=CBOR_SEQ, headers=headers
        )
        try:
            outcomes = [_outcome(item) for item in cbor.split_sequence(body)]
        except DecodeError as exc:
            raise Misbehaved(f"the hub's answer is not a sequence: {exc}") from None
        if len(outcomes) != len(wires):
            raise Misbehaved(f"{len(outcomes)} answers to {len(wires)} messages")
        return outcomes

    async def page(
        self, label: Label, start: StreamSeq, max_items: int, *, end: StreamSeq | None = None
    ) -> tuple[list[Entry], bool]:
        """Entries from ``start`` on, without holes, and whether there are more; none of an unknown label."""
        question = StreamRequest(
            label=label, from_seq=start, to_seq=end, max_items=max_items, with_receipts=True
        )
        try:
            body = await self.transport.call("POST", "/v1/stream", question.encode(), most=MAX_PAGE)
        except NotFound:
            if await self._exists(label):
                raise  # pruned by retention
            return [], False
        heads = HEADS * (1 + max_items) + self._of_tokens(label, len(body))
        item_end(body, heads=heads)  # before anything is built of it
        kind: type[StreamResponse | ControlResponse] = StreamResponse
        if label == self.control_label:
            kind = ControlResponse
        page = decode_response(kind, body)
        if page.label != label:
            raise Misbehaved("a page of another label")
        items: Sequence[StreamItem | ControlItem] = page.items
        entries = [_entry(label, item, start + position) for position, item in enumerate(items)]
        if (end is not None and entries and entries[-1].stream_seq > end) or len(entries) > max_items:
            raise Misbehaved("a page of more than was asked for")
        if page.next_cursor is not None and (not entries or page.next_cursor != start + len(entries)):
            raise Misbehaved("next_cursor does not follow the page (§10.5)")
        return entries, page.next_cursor is not None

    def _of_tokens(self, label: Label, size: int) -> int:
        """More parts than a MSG has: a token names as many streams as there is room for."""
        return size // StreamId.SIZE if label == self.control_label else 0

    async def _exists(self, label: Label) -> bool:
        return await self.receipt_or_none(label, StreamSeq(1)) is not None

    async def live(self, label: Label, start: StreamSeq, limits: Limits) -> AsyncGenerator[list[Entry], None]:
        """Entries from ``start`` on as they come, without holes; ends when the hub ends it (H15).

        First comes an empty list: the hub has answered.
        """
        most = limits.max_msg_bytes + ITEM_OVERHEAD
        framer, at = Framer(most, HEADS + self._of_tokens(label, most)), int(start)
        kind: type[StreamItem | ControlItem] = StreamItem
        if label == self.control_label:
            kind = ControlItem
        async with self.transport.open(
            "GET", f"/v1/stream/{label.hex()}?from={start}", idle=self.transport.timeouts.idle
        ) as response:
            yield []
            async for part in response.content.iter_any():
                items = [decode_response(kind, item) for item in framer.feed(part)]
                if items:
                    yield [_entry(label, item, at + position) for position, item in enumerate(items)]
                    at += len(items)

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:
        question = ReceiptRequest(label=label, stream_seq=stream_seq)
        found = (await self._ask("/v1/receipt", question, ReceiptResponse)).receipt
        if (found.label, found.stream_seq) != (label, stream_seq):
            raise Misbehaved(f"a receipt of another entry than {stream_seq}")
        return found

    async def newest_receipt(self, label: Label) -> Receipt | None:
        """The label's newest receipt; None if the label is empty, or this hub has no such request."""
        question = ReceiptRequest(label=label, stream_seq=NO_ENTRIES)
        try:
            found = (await self._ask("/v1/receipt", question, ReceiptResponse)).receipt
        except (NotFound, BadRequest):
            return None
        if found.label != label:
            raise Misbehaved("the hub's answer is a receipt of another label")
        return found

    async def receipt_or_none(self, label: Label, stream_seq: StreamSeq) -> Receipt | None:
        try:
            return await self.receipt(label, stream_seq)
        except NotFound:
            return None

    async def proof(
        self, label: Label, stream_seq: StreamSeq, tree_size: StreamSeq | None = None
    ) -> MmrProof:
        question = ProofRequest(label=label, stream_seq=stream_seq, tree_size=tree_size)
        return (await self._ask("/v1/proof", question, ProofResponse)).mmr_proof

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
        question = ConsistencyRequest(label=label, from_seq=from_seq, to_seq=to_seq)
        found = (await self._ask("/v1/consistency", question, ConsistencyResponse)).mmr_consistency
        if (found.from_seq, found.to_seq) != (from_seq, to_seq):
            raise Misbehaved("a consistency proof between other sizes")
        return found

    async def checkpoint(self, label: Label, upto_seq: StreamSeq = NO_ENTRIES) -> Checkpoint | None:
        """The one at ``upto_seq``, or the latest; None if there is none."""
        try:
            found = await self._ask(
                "/v1/checkpoint", CheckpointRequest(label=label, upto_seq=upto_seq), CheckpointResponse
            )
        except NotFound:
            return None
        if found.checkpoint.label_curr != label or upto_seq not in (0, found.checkpoint.upto_seq):
            raise Misbehaved("another checkpoint than the one asked for")
        return found.checkpoint

    async def authorize(self, token: bytes) -> AuthorizeResponse:
        return decode_response(
            AuthorizeResponse, await self.transport.call("POST", "/tooling/authorize", token)
        )

    async def cap_status(self, auth_ref: AuthRef) -> CapStatus:
        found = decode_response(CapStatus, await self.transport.call("GET", f"/tooling/cap/{auth_ref.hex()}"))
        if found.auth_ref != auth_ref:
            raise Misbehaved("the status of another auth_ref")
        return found

    async def report(self, evidence: bytes) -> bool:
        return decode_response(
            OkResponse, await self.transport.call("POST", "/tooling/equivocation", evidence)
        ).ok


def _outcome(item: bytes) -> Receipt | Refused:
    if len(item) > _ANSWER_AT and item[_ANSWER_AT] == _RECEIPT_HEAD:
        return decode_response(SubmitResponse, item).receipt
    return refusal(decode_response(ErrorEnvelope, item))


def _entry(label: Label, item: StreamItem | ControlItem, want: int) -> Entry:
    """An item as the entry it came from; the codec is canonical, so the bytes are the hub's."""
    if item.stream_seq != want:
        raise Misbehaved(f"entry {item.stream_seq} where {want} was to come: a hole, or another page")
    if item.receipt is None:
        raise Misbehaved(f"entry {want} without its receipt")
    flags = FLAG_AUTHORIZE if isinstance(item, ControlItem) else 0
    return Entry(label, item.stream_seq, item.msg.encode(), item.receipt.encode(), flags)
