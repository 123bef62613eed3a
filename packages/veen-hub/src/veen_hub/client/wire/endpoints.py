"""The hub's API as typed calls: each returns a response that fits its request, or raises (§10.4, H14-H19).

Signatures, roots and proofs are not verified here; ``label`` does that. Nothing is retried here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from typing import Final, ParamSpec, TypeVar

from veen_core.api import (
    CheckpointRequest,
    CheckpointResponse,
    ConsistencyRequest,
    ConsistencyResponse,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamRequest,
    wrap_submit,
)
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.entry import Entry
from veen_core.errors import DecodeError
from veen_core.hub_log import (
    HubConsistencyRequest,
    HubConsistencyResponse,
    HubProofRequest,
    HubProofResponse,
)
from veen_core.ids import NO_ENTRIES, AuthRef, Label, StreamSeq
from veen_core.limits import Limits
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.status import AuthorizeResponse, CapStatus, OkResponse, Status
from veen_core.tlog.tiles import MAX_ENTRY_BYTES, TILE_WIDTH
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_core.wire import Wire
from veen_hub.client.errors import BadRequest, Misbehaved, NotFound, Refused, TooLarge
from veen_hub.client.wire.framing import MAX_CBOR_ITEMS, Framer
from veen_hub.client.wire.outcomes import OutcomeDecoder, Outcomes
from veen_hub.client.wire.stream_items import (
    cut_page,
    decode_item,
    decode_page,
    decode_response,
    find_end,
    token_items,
)
from veen_hub.client.wire.threads import Workers
from veen_hub.client.wire.transport import CBOR_SEQ, HubTransport

__all__ = ["Endpoints", "decode_response"]

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound=Wire)
MAX_ITEM_OVERHEAD: Final = 4_096
"""Most bytes that a stream item has in addition to its MSG."""
MAX_LIVE_BYTES: Final = 65_536
"""Bytes of a live stream that are split at once, about 1 ms of the event loop."""
MAX_PAGE_BYTES: Final = 16 * 1_048_576
"""Largest page accepted; the hub ends a page with the entry that exceeds 8 MiB."""

MAX_SEQUENCE_BYTES: Final = 8 * 1_048_576
"""Largest sequence of messages that a hub accepts (H14)."""
MAX_BUNDLE_BYTES: Final = TILE_WIDTH * (2 + MAX_ENTRY_BYTES)
"""Largest entry bundle of a C2SP log; one of a hub log has about 25 KiB."""


class Endpoints:
    """The endpoints of one hub."""

    def __init__(self, transport: HubTransport, workers: Workers | None = None) -> None:
        """``workers`` decode unusual pages; without them the event loop does."""
        self.transport = transport
        self._workers = workers
        self._outcomes = OutcomeDecoder()
        self._max_request_bytes = MAX_SEQUENCE_BYTES
        """Largest sequence that is sent; smaller once a larger one was refused."""
        self.control_label: Label | None = None
        """The label whose entries are tokens (H5); set once the hub's identity is checked."""

    async def _ask(self, path: str, question: Wire, kind: type[W]) -> W:
        return decode_response(kind, await self.transport.call("POST", path, question.encode()))

    async def status(self) -> Status:
        return decode_response(Status, await self.transport.call("GET", "/v1/status"))

    async def submit(self, wires: Sequence[bytes], *, headers: Mapping[str, str] | None = None) -> Outcomes:
        """Return an outcome for each message, in order; raises if the whole request is refused (H14).

        A request that a proxy or the hub finds too large is sent in two halves, and so are later ones of its
        size.
        """
        if len(wires) == 1:
            try:
                body = await self.transport.call("POST", "/v1/submit", wrap_submit(wires[0]), headers=headers)
            except Refused as exc:
                return [exc]
            return [self._outcomes.decode_receipt(body)]
        request = b"".join(map(wrap_submit, wires))
        if len(request) <= self._max_request_bytes:
            try:
                return await self._submit_sequence(request, len(wires), headers)
            except TooLarge:
                self._max_request_bytes = len(request) // 2
        half = len(wires) // 2
        outcomes = await self.submit(wires[:half], headers=headers)
        try:
            return outcomes + await self.submit(wires[half:], headers=headers)
        except Refused as exc:  # the first half has its outcomes
            return outcomes + [exc] * (len(wires) - half)

    async def _submit_sequence(
        self, request: bytes, count: int, headers: Mapping[str, str] | None
    ) -> Outcomes:
        body = await self.transport.call(
            "POST", "/v1/submit", request, content_type=CBOR_SEQ, headers=headers
        )
        outcomes = self._outcomes.decode(body)
        if len(outcomes) != count:
            raise Misbehaved(f"the hub gave {len(outcomes)} answers to {count} messages")
        return outcomes

    async def page(
        self, label: Label, start: StreamSeq, max_items: int, *, end: StreamSeq | None = None
    ) -> tuple[Sequence[Entry], bool]:
        """Return consecutive entries from ``start`` on, and whether more follow. Unknown labels are empty."""
        question = StreamRequest(
            label=label, from_seq=start, to_seq=end, max_items=max_items, with_receipts=True
        )
        ask = partial(self.transport.call, "POST", "/v1/stream", question.encode(), max_bytes=MAX_PAGE_BYTES)
        try:
            body = await ask()
        except NotFound:
            if not await self._exists(label):
                return [], False
            body = await ask()  # the label has got its first entries meanwhile, or retention pruned them
        page = None
        if not (control := label == self.control_label):
            page = cut_page(body, label, start, max_items)
        if page is None:
            page = await self._run(decode_page, body, label, start, max_items, control=control)
        count = len(page.entries)
        if (end is not None and count and page.entries[-1].stream_seq > end) or count > max_items:
            raise Misbehaved("the hub answered with more entries than were asked for")
        if page.next_cursor is not None and (not count or page.next_cursor != start + count):
            raise Misbehaved("next_cursor does not follow the page's last entry (core §10.5)")
        return page.entries, page.next_cursor is not None

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that may take many milliseconds in a thread."""
        if self._workers is None:
            return call(*args, **kwargs)
        return await self._workers.run(call, *args, **kwargs)

    async def _exists(self, label: Label) -> bool:
        return await self.receipt_or_none(label, StreamSeq(1)) is not None

    async def live(self, label: Label, start: StreamSeq, limits: Limits) -> AsyncGenerator[list[Entry], None]:
        """Yield consecutive entries from ``start`` on as they arrive, until the hub ends the stream (H15).

        The first list is empty; it means that the hub has answered.
        """
        max_bytes, control = limits.max_msg_bytes + MAX_ITEM_OVERHEAD, label == self.control_label
        max_items, at = MAX_CBOR_ITEMS + token_items(max_bytes, control=control), int(start)
        framer = Framer(max_bytes, max_items, None if control else find_end)
        async with self.transport.open(
            "GET", f"/v1/stream/{label.hex()}?from={start}", idle=self.transport.timeouts.idle
        ) as parts:
            yield []
            async for part in parts:
                for begin in range(0, len(part), MAX_LIVE_BYTES):
                    items = enumerate(framer.feed(part[begin : begin + MAX_LIVE_BYTES]), at)
                    if entries := [decode_item(item, label, seq, control=control) for seq, item in items]:
                        yield entries
                        at += len(entries)

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:
        question = ReceiptRequest(label=label, stream_seq=stream_seq)
        found = (await self._ask("/v1/receipt", question, ReceiptResponse)).receipt
        if (found.label, found.stream_seq) != (label, stream_seq):
            raise Misbehaved(f"the hub answered with a receipt of another entry than {stream_seq}")
        return found

    async def newest_receipt(self, label: Label) -> Receipt | None:
        """Return the label's newest receipt; None if the label is empty or the hub refuses the request."""
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
            raise Misbehaved("the hub answered with a consistency proof between other sizes")
        return found

    async def checkpoint(self, label: Label, upto_seq: StreamSeq = NO_ENTRIES) -> Checkpoint | None:
        """Return the checkpoint at ``upto_seq``, or the latest (0); None if there is none."""
        try:
            found = await self._ask(
                "/v1/checkpoint", CheckpointRequest(label=label, upto_seq=upto_seq), CheckpointResponse
            )
        except NotFound:
            return None
        if found.checkpoint.label_curr != label or upto_seq not in (0, found.checkpoint.upto_seq):
            raise Misbehaved("the hub answered with another checkpoint than the one asked for")
        return found.checkpoint

    # --- the hub log (RESOLUTIONS P1)

    async def hub_checkpoint(self) -> SignedHead | None:
        """Return the published hub checkpoint; None if the hub has none. Caches must ask the hub."""
        try:
            note = await self.transport.call("GET", "/log/checkpoint", headers={"Cache-Control": "no-cache"})
        except NotFound:
            return None
        return parse_hub_checkpoint(note)

    async def log_file(self, path: str) -> bytes:
        """Return a tile or an entry bundle of the hub log, by its path below ``/log/`` (C2SP tlog-tiles)."""
        return await self.transport.call("GET", f"/log/{path}", max_bytes=MAX_BUNDLE_BYTES)

    async def hub_proof(self, label: Label, stream_seq: StreamSeq | None) -> HubProofResponse:
        """Return a label's newest head in the hub log, or the first that covers ``stream_seq``."""
        question = HubProofRequest(label=label, stream_seq=stream_seq)
        found = await self._ask("/v1/hublog/proof", question, HubProofResponse)
        if found.head.label != label or (stream_seq is not None and found.head.upto_seq < stream_seq):
            raise Misbehaved("the hub answered with the head of another label or before the entry asked for")
        return found

    async def hub_consistency(self, old_size: int, new_size: int) -> HubConsistencyResponse:
        question = HubConsistencyRequest(old_size=old_size, new_size=new_size)
        found = await self._ask("/v1/hublog/consistency", question, HubConsistencyResponse)
        if (found.old_size, found.new_size) != (old_size, new_size):
            raise Misbehaved("the hub answered with a consistency proof between other sizes of the hub log")
        return found

    async def authorize(self, token: bytes) -> AuthorizeResponse:
        return decode_response(
            AuthorizeResponse, await self.transport.call("POST", "/tooling/authorize", token)
        )

    async def cap_status(self, auth_ref: AuthRef) -> CapStatus:
        found = decode_response(CapStatus, await self.transport.call("GET", f"/tooling/cap/{auth_ref.hex()}"))
        if found.auth_ref != auth_ref:
            raise Misbehaved("the hub answered with the status of another auth_ref")
        return found

    async def report(self, evidence: bytes) -> bool:
        return decode_response(
            OkResponse, await self.transport.call("POST", "/tooling/equivocation", evidence)
        ).ok


def parse_hub_checkpoint(note: bytes) -> SignedHead:
    """Parse a hub checkpoint that the hub shows; no signature is verified."""
    try:
        return parse_signed_head(note)
    except DecodeError as exc:
        raise Misbehaved(f"the hub's answer is not a hub checkpoint: {exc}") from None
