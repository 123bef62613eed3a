"""The hub of one shard: it admits messages of its own labels, and passes the others on to their owners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from veen_core.cap import CapToken
from veen_core.entry import Entry, unframe
from veen_core.errors import ApiError, DecodeError, VeenError
from veen_core.hub_identity import verify_receipt
from veen_core.ids import Label, StreamSeq
from veen_core.rejection import Code
from veen_hub.admission.stateless import Submission
from veen_hub.hub import Hub
from veen_hub.ops.anchors import AnchorPublisher
from veen_hub.ops.config import HubConfig
from veen_hub.pipeline.pending_requests import NEWCOMERS, Outcome, PendingRequest
from veen_hub.pipeline.worker_process import cores
from veen_hub.shards.gate_copy import GateCopy
from veen_hub.shards.part_hub import NOT_OPENED, FloorClock, KnownHistories, PartHubLog
from veen_hub.shards.submit_link import LABEL_AT, SubmitLink
from veen_storage import Batch, PendingEntry, Store
from veen_storage.shards.seen_hub_log import SeenHubLog, read_seen, write_seen
from veen_storage.shards.sharded_layout import owner_of

ENVELOPE_HEAD_BYTES: Final = 4
"""Bytes before the MSG in a submit envelope in CBOR."""


class ShardHub(Hub):
    """One shard's part of a hub; ``links`` lead to the other shards, by number."""

    owns_control = False
    hub_log: PartHubLog  # type: ignore[assignment]  # it has the methods that a hub calls

    def __init__(
        self,
        config: HubConfig,
        store: Store,
        *,
        number: int,
        count: int,
        clock: FloorClock,
        origin: str,
        links: dict[int, SubmitLink],
        anchor: AnchorPublisher | None,
    ) -> None:
        self.number = number
        self.count = count
        self._links = links
        self._floor_clock = clock
        self._origin = origin
        super().__init__(config, store, clock=clock, anchor=anchor)
        self.gate_copy = GateCopy(self.signing_gate)
        self.signing_gate.wait(NOT_OPENED, NOT_OPENED)

    def _make_hub_log(self, anchor: AnchorPublisher | None) -> Any:  # noqa: ARG002 - no memory of a part's own hub log
        return PartHubLog(
            self._origin,
            self.store,
            self.store.hub_log,
            self.log,
            gate=self.signing_gate,
            clock=self._floor_clock,
            last_batch=lambda: self.store.last_batch,
        )

    def _has_spare_core(self) -> bool:
        return cores() > self.count

    def refresh_gauges(self) -> None:
        """Update the gauges that are read rather than counted, before a scrape."""
        super().refresh_gauges()
        self.metrics.signing.set(0 if self.signing_gate.closed is not None else 1)
        self.metrics.hub_log_moved.set(self.store.hub_log.moved)

    @property
    def highest_load(self) -> float:
        return max(self.load, self.gate_copy.highest_load)

    # --- submitting

    def check_room(self, source: bytes) -> None:
        """Do nothing: the owner of a label is known only once the message is here."""

    def overload(self, source: bytes, body: bytes) -> ApiError | None:
        """Return the error if this shard is overloaded and owns the label of the body's first message."""
        if self._owner_of(body[ENVELOPE_HEAD_BYTES : ENVELOPE_HEAD_BYTES + LABEL_AT.stop]) != self.number:
            return None
        return super().overload(source, body)

    def enter(
        self, wires: list[bytes], on_settled: Callable[[], None], source: bytes = NEWCOMERS
    ) -> PendingRequest:
        """Send messages of own labels through the pipeline, and the others to the shards that own them."""
        owners = [self._owner_of(wire) for wire in wires]
        if all(owner == self.number for owner in owners):
            return super().enter(wires, on_settled, source)
        request = PendingRequest.of(wires, on_settled, source)
        places: dict[int, list[int]] = {}
        for at, owner in enumerate(owners):
            places.setdefault(owner, []).append(at)
        for owner, some in places.items():
            part = [wires[at] for at in some]
            if owner == self.number:
                self._enter_own(request, some, part)
            else:
                self._links[owner].send(part, _settler(request, some), source)
        return request

    def _enter_own(self, request: PendingRequest, places: list[int], wires: list[bytes]) -> None:
        settle = _settler(request, places)

        def settled() -> None:
            request.verify_seconds = own.verify_seconds
            for at, verdict in zip(places, own.verdicts, strict=True):
                request.verdicts[at] = verdict
            settle(own.settled)

        try:
            own = super().enter(wires, settled, request.source)
        except ApiError as exc:  # the other shards have their messages already
            settle([exc] * len(places))

    def _owner_of(self, wire: bytes) -> int:
        label = wire[LABEL_AT]
        return owner_of(Label(label), self.count) if len(label) == Label.SIZE else self.number

    def _admit(self, submission: Submission, batch: Batch) -> PendingEntry:
        """In the sequencer: admit a message, unless another shard owns its label."""
        if owner_of(submission.label, self.count) != self.number:
            raise ApiError(Code.BAD_REQUEST, f"label {submission.label.hex()} belongs to another shard")
        return super()._admit(submission, batch)

    def enter_own(self, wires: list[bytes], on_settled: Callable[[], None], source: bytes) -> PendingRequest:
        """Send messages that another shard has passed on through the pipeline; none is passed on again."""
        return super().enter(wires, on_settled, source)

    # --- what the coordinator must continue

    async def known_histories(self) -> KnownHistories:
        """Return what this shard has seen of the control label and of the joined hub log."""
        return await self.log.read(self._known_histories)

    def _known_histories(self) -> KnownHistories:
        head = self.store.read.head(self.admission.control_label)
        seen = read_seen(self._state)
        return KnownHistories(
            control_seq=head.stream_seq if head is not None else 0,
            control_root=head.mmr_root if head is not None else b"",
            hub_log_size=seen.size,
            hub_log_root=seen.root,
        )

    async def remember_hub_log(self, size: int, root: bytes) -> None:
        """Record durably a hub checkpoint of the joined hub log, before it leaves the hub."""
        await self.log.read(lambda: write_seen(self._state, SeenHubLog(size, root)))

    # --- tokens

    async def copy_control(self, frames: Sequence[bytes]) -> StreamSeq:
        """Append entries of the control label that this shard lacks; return its last one."""
        return await self.log.act(lambda batch: self._copy_control(batch, frames))

    def _copy_control(self, batch: Batch, frames: Sequence[bytes]) -> StreamSeq:
        for token in copy_control(batch, self.store, frames, self.admission.control_label):
            self.admission.labels.learn(token.allow.stream_ids)
            self.publisher.counts.accepted += 1
        cursor = batch.label(self.admission.control_label)
        return cursor.log.stream_seq if cursor is not None else StreamSeq(0)


def copy_control(batch: Batch, store: Store, frames: Sequence[bytes], control: Label) -> list[CapToken]:
    """Verify and append entries of the control label that the part lacks; return their tokens."""
    tokens = []
    for frame in frames:
        try:
            entry = unframe(frame)
            if entry.label != control or not entry.is_authorize:
                raise DecodeError("is not an entry of the control label", where="control entry")
            verify_receipt(store.identity, entry.receipt)
            token = CapToken.decode(entry.msg_bytes)
        except VeenError as exc:
            raise ApiError(Code.BAD_REQUEST, f"control entry: {exc}") from exc
        cursor = batch.label(control)
        if cursor is None or entry.stream_seq > cursor.log.size:
            batch.copy_entry(frame)
            tokens.append(token)
    return tokens


def _settler(request: PendingRequest, places: list[int]) -> Callable[[Sequence[Outcome]], None]:
    """Return a function that fills in the outcomes of some messages, and answers with the last ones."""

    def settle(outcomes: Sequence[Outcome | Entry]) -> None:
        for at, outcome in zip(places, outcomes, strict=True):
            request.outcomes[at] = outcome
        request.open -= len(places)
        if request.open == 0:  # later: the caller of ``enter`` must have its request by then
            asyncio.get_running_loop().call_soon(request.on_settled)

    return settle
