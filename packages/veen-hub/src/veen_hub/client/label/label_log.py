"""The verified prefix of one label, durable, and every question about it answered with proof (§9, RESYNC0).

Nothing leaves here unverified. An entry, receipt or checkpoint is signed by the hub, obeys the invariants,
and lies in the one tree whose root this client has followed so far: inside it by consistency proofs, beyond
it by extending it. A contradiction raises ``Diverged`` with the evidence. State changes under ``prefix``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from veen_core.checkpoint import Checkpoint, LabelOrigin
from veen_core.client_state import ClientState, RatchetKey
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.entry import Entry
from veen_core.errors import DivergenceError, SignatureError
from veen_core.ids import NO_ENTRIES, ClientId, Label, LeafHash, StreamSeq
from veen_core.proof import MmrProof, verify_inclusion
from veen_core.receipt import Receipt
from veen_hub.client.errors import Diverged, Misbehaved, NotFound
from veen_hub.client.label.evidence import save_evidence, with_evidence
from veen_hub.client.label.keyring import KeyRing
from veen_hub.client.label.label_client import PipelinedClient
from veen_hub.client.label.label_state import LabelState
from veen_hub.client.state.records import LabelRecord, decode_record
from veen_hub.client.wire.connection import HubConnection

T = TypeVar("T")
SEARCH_PAGE: Final = 500
"""Entries asked for at a time where only their receipts are looked at."""


class LabelLog:
    """One label as this client knows it; shared by all readers and writers of a connection."""

    def __init__(
        self, connection: HubConnection, label: Label, client: PipelinedClient, ring: KeyRing
    ) -> None:
        self.connection = connection
        self.label = label
        self.client = client
        self.ring = ring
        self.prefix = asyncio.Lock()
        self.answers: dict[LeafHash, Receipt] = {}
        """Receipts of own messages that a reader came across before their answer did."""
        self.state = LabelState(self)
        self._greeted = False

    @classmethod
    def load(cls, connection: HubConnection, label: Label, origin: LabelOrigin | None) -> LabelLog:
        """From the state store, or new; touches files."""
        content = connection.store.load(connection.hub_id, label.hex())
        if content is not None:
            record = decode_record(LabelRecord, content, label.hex())
            state, ring = record.state, KeyRing(connection.identity, record.keys, connection.randomness)
        else:
            ring, now = KeyRing(connection.identity, (), connection.randomness), connection.time.now()
            state = ClientState(
                label=label,
                profile_id=connection.profile.profile_id,
                client_id=ring.draw(now),
                created_at=now,
                rk=RatchetKey(connection.randomness(RatchetKey.SIZE)),
            )
        return cls(
            connection, label, PipelinedClient(state, connection.trust(origin), connection.bounds), ring
        )

    @property
    def client_id(self) -> ClientId:
        return self.client.state.client_id

    # --- first contact

    async def check_head_once(self) -> None:
        """Once a connection: the hub still has what it showed before (§9: consistency with the last head)."""
        if not self._greeted:
            async with self.prefix:
                await self.check_head()
            self._greeted = True

    async def check_head(self, *, once: bool = False) -> None:
        """The furthest receipt held is still in the log, and the same; asks until it is told, or ``once``.

        Patience is for the asking only: a hub that contradicts itself and then falls silent has diverged.
        """
        head = self.client.state.head
        if head is None:
            return
        call = partial(self.connection.api.receipt_or_none, self.label, head.stream_seq)
        shown = await (call() if once else self.connection.ask(call))
        if shown is None:
            lost = DivergenceError(
                f"the hub signed a receipt for stream_seq {head.stream_seq} of label {self.label.hex()} "
                "and has no such entry any more",
                held=head.encode(),
            )
            raise await save_evidence(self.connection, lost)
        await self._judged(lambda: self._compare(shown))

    async def _compare(self, shown: Receipt) -> None:
        self.client.verify_own(shown)

    async def judged(self, step: Callable[[], Awaitable[T]]) -> T:
        """A step that verifies what the hub showed and then changes state, alone with the prefix."""
        async with self.prefix:
            return await self._judged(step)

    async def _judged(self, step: Callable[[], Awaitable[T]]) -> T:
        """A signature by a key not known yet is looked into once; a divergence comes with its evidence."""
        try:
            try:
                return await step()
            except SignatureError:
                if not await self._has_new_key():
                    raise
                return await step()
        except Diverged:
            raise
        except DivergenceError as exc:
            raise await with_evidence(self.connection, self.label, exc) from exc

    async def _has_new_key(self) -> bool:
        """Whether the hub has come back from a restart with a key that it did not have before (§8.4)."""
        await self.connection.refresh()
        if self.client.trust.identity == self.connection.status.identity:
            return False
        self.client.trust = self.connection.trust(self.client.trust.origin)
        return True

    # --- entries

    async def page(
        self, start: StreamSeq, most: int, end: StreamSeq | None = None
    ) -> tuple[list[Entry], bool]:
        """As the hub sends it: to be handed to ``accept``."""
        known = self.client.size if end is None else min(self.client.size, end)
        entries, more = await self.connection.ask(
            lambda: self.connection.api.page(self.label, start, most, end=end)
        )
        if not more and (after := start + len(entries)) <= known:
            raise Misbehaved(f"the log is said to end before {after}, where {known} entries are known")
        return entries, more

    async def accept(
        self, entries: Sequence[Entry], reader: PipelinedClient | None
    ) -> PipelinedClient | None:
        """Verify entries without holes; returns what to hand in with those that follow."""
        return await self.judged(lambda: self._accept(entries, reader))

    async def _accept(
        self, entries: Sequence[Entry], reader: PipelinedClient | None
    ) -> PipelinedClient | None:
        before = StreamSeq(entries[0].stream_seq - 1)
        if before > self.client.size:
            await self._extend(await self.fetch(before))
        inside = entries[: max(0, self.client.size - before)]
        beyond = entries[len(inside) :]
        if inside:
            reader = await self._accept_inside(inside, before, reader)
        if beyond:
            await self._accept_beyond(beyond)
            reader = None
        return reader

    async def _accept_inside(
        self, entries: Sequence[Entry], before: StreamSeq, reader: PipelinedClient | None
    ) -> PipelinedClient:
        """A reader of its own follows the page; its tree must be a part of the verified one, at both ends."""
        if reader is None or reader.size != before:
            reader = self.client.at(before, await self._consistency(before))
        reader.trust = self.client.trust
        await self.connection.workers.run(reader.accept_page, entries)
        self.client.verify_part(reader.tree, await self._consistency(reader.size), entries[-1].receipt_bytes)
        return reader

    async def _accept_beyond(self, entries: Sequence[Entry]) -> None:
        await self.connection.workers.run(self._accept_page, entries)
        await self.state.note_progress()

    def _accept_page(self, entries: Sequence[Entry]) -> None:
        """In a thread, whole even if cancelled: what settles a message also notes its receipt."""
        own = set(self.client.pending_leaves)
        self.client.accept_page(entries)
        if own:
            receipts = (entry.receipt for entry in entries)
            self.answers |= {receipt.leaf_hash: receipt for receipt in receipts if receipt.leaf_hash in own}

    # --- the prefix

    async def _ask(self, last: StreamSeq, call: Callable[[], Awaitable[T]]) -> T:
        """About entries up to ``last``: a hub that knows nothing of them may have known them once."""
        try:
            return await self.connection.ask(call)
        except NotFound:
            await self.check_head()
            if last <= self.client.size:
                raise Misbehaved(f"entry {last} is denied, where {self.client.size} are known") from None
            raise

    async def fetch(self, stream_seq: StreamSeq) -> Receipt:
        """As the hub sends it: to be handed to ``verify``."""
        return await self._ask(stream_seq, lambda: self.connection.api.receipt(self.label, stream_seq))

    async def _proof(self, stream_seq: StreamSeq, tree_size: StreamSeq | None = None) -> MmrProof:
        last = stream_seq if tree_size is None else tree_size
        return await self._ask(last, lambda: self.connection.api.proof(self.label, stream_seq, tree_size))

    async def _consistency(self, size: StreamSeq, to: StreamSeq | None = None) -> MmrConsistency | None:
        """Between a size and the verified prefix (or another size); None where there is nothing to prove."""
        small, large = size, self.client.size if to is None else to
        if small in (0, large):
            return None
        return await self._ask(large, lambda: self.connection.api.consistency(self.label, small, large))

    async def _extend(self, receipt: Receipt) -> None:
        """Move the verified prefix to a receipt ahead of it; ``prefix`` is held."""
        head = self.client.state.head
        furthest = StreamSeq(max(self.client.size, head.stream_seq if head is not None else NO_ENTRIES))
        proof, consistency = await asyncio.gather(
            self._proof(receipt.stream_seq), self._consistency(furthest, receipt.stream_seq)
        )
        self.client.extend(receipt, proof, consistency)
        await self.state.note_progress()

    async def include(self, receipt: Receipt) -> None:
        """Verify a receipt wherever it lies; ``prefix`` is held."""
        if receipt.stream_seq > self.client.size:
            await self._extend(receipt)
            return
        proof, consistency = await asyncio.gather(
            self._proof(receipt.stream_seq), self._consistency(receipt.stream_seq)
        )
        self.client.verify_within(receipt, proof, consistency)

    async def catch_up(self, receipt: Receipt) -> None:
        """Settle a pending MSG whose receipt lies beyond a gap; ``prefix`` is held."""
        proof, consistency = await asyncio.gather(
            self._proof(receipt.stream_seq), self._consistency(self.client.size, receipt.stream_seq)
        )
        self.client.catch_up(receipt, proof, consistency)

    async def confirm(self, receipt: Receipt) -> None:
        """Settle a pending MSG inside the prefix; ``prefix`` is held."""
        proof, consistency = await asyncio.gather(
            self._proof(receipt.stream_seq), self._consistency(receipt.stream_seq)
        )
        self.client.confirm(receipt, proof, consistency)

    # --- questions

    async def receipt(self, stream_seq: StreamSeq) -> Receipt:
        """Verified: signed, and part of the one tree."""
        found = await self.fetch(stream_seq)
        await self.verify(found)
        return found

    async def verify(self, receipt: Receipt) -> None:
        """A receipt from anywhere against this log."""
        await self.judged(lambda: self.include(receipt))

    async def proof(self, stream_seq: StreamSeq, tree_size: StreamSeq | None = None) -> MmrProof:
        """Verified against the receipt that completed the tree (B10)."""
        size = stream_seq if tree_size is None else tree_size
        leaf = await self.receipt(stream_seq)
        whole = leaf if size == stream_seq else await self.receipt(size)
        proof = await self._proof(stream_seq, tree_size)
        verify_inclusion(proof, whole.mmr_root, stream_seq, leaf.leaf_hash, size)
        return proof

    async def consistency(self, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
        """Verified against both receipts, which are themselves (B11)."""
        small, large = await self.receipt(from_seq), await self.receipt(to_seq)
        found = await self._ask(to_seq, lambda: self.connection.api.consistency(self.label, from_seq, to_seq))
        verify_consistency(found, small.mmr_root, large.mmr_root)
        return found

    async def checkpoint(self, upto_seq: StreamSeq = NO_ENTRIES) -> Checkpoint | None:
        """The latest, or the one at ``upto_seq``; verified like a receipt, never behind the last one seen."""
        seen = self.client.state.checkpointed
        found = await self.connection.ask(lambda: self.connection.api.checkpoint(self.label, upto_seq))
        if found is None:
            if seen and upto_seq in (0, seen):
                raise Misbehaved(f"no checkpoint is shown, where the one at {seen} was seen")
            return None
        await self._verify_checkpoint(found, seen if upto_seq == 0 else NO_ENTRIES)
        return found

    async def verify_checkpoint(self, shown: Checkpoint) -> None:
        """One from anywhere against this log; if it is behind the last one seen, the hub's latest is not."""
        seen = self.client.state.checkpointed
        await self._verify_checkpoint(shown, NO_ENTRIES)
        if shown.upto_seq < seen:
            await self.checkpoint()

    async def _verify_checkpoint(self, checkpoint: Checkpoint, seen: StreamSeq) -> None:
        last = await self.fetch(checkpoint.upto_seq)
        await self.judged(lambda: self._accept_checkpoint(checkpoint, last, seen))

    async def _accept_checkpoint(self, checkpoint: Checkpoint, last: Receipt, seen: StreamSeq) -> None:
        await self.include(last)
        part = self.client.at(last.stream_seq, await self._consistency(last.stream_seq))
        self.client.accept_checkpoint(checkpoint, part.tree, last, now=self.connection.time.now(), seen=seen)
        await self.state.note_progress()

    async def head(self) -> Receipt | None:
        """Return the newest receipt, verified, and extend the prefix to it; None if the label is empty."""
        await self.check_head_once()
        known = self.client.size
        newest = await self.connection.ask(lambda: self.connection.api.newest_receipt(self.label))
        if newest is None:
            newest = await self._search_head(known)
        head = self.client.state.head
        if newest is None or (newest == head and newest.stream_seq == self.client.size):
            return head
        if newest.stream_seq < known:
            raise Misbehaved(f"the hub says the newest entry is {newest.stream_seq}, but {known} are known")
        await self.verify(newest)
        return newest

    async def _search_head(self, known: int) -> Receipt | None:
        """Find the newest receipt by bisection, at a hub that does not return it on request.

        Core §10.4 has no such request: it is an extension of this project's hub.
        """
        low, high, step, found = known, 0, 1, None
        while not high or high - low > 1:
            at = StreamSeq(low + step if not high else (low + high) // 2)
            shown = await self.connection.ask(partial(self.connection.api.receipt_or_none, self.label, at))
            if shown is None:
                high = at
            else:
                low, found, step = at, shown, step * 2
        return found
