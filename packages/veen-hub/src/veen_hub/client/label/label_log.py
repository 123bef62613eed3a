"""The verified log of one label: what the hub sends is verified before it is returned (§9, RESYNC0).

An entry, receipt or checkpoint must be signed by the hub, obey the invariants, and belong to the one tree
that this client has verified so far. Within the verified prefix a consistency proof shows that; beyond it the
prefix is extended. A contradiction raises ``Diverged`` with the evidence. State changes under ``prefix``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from veen_core.checkpoint import Checkpoint, LabelOrigin
from veen_core.client_state import ClientState, RatchetKey
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.entry import Entry
from veen_core.errors import DivergenceError, SignatureError, VeenError
from veen_core.hub_log import HubProofResponse
from veen_core.ids import NO_ENTRIES, ClientId, Label, LeafHash, StreamSeq
from veen_core.pipelined_client import PipelinedClient
from veen_core.proof import MmrProof, verify_inclusion
from veen_core.receipt import Receipt
from veen_hub.client.errors import Diverged, Misbehaved, NotFound, Unreachable
from veen_hub.client.label.evidence import find_label_fork, save_evidence, with_evidence
from veen_hub.client.label.followers import Followers
from veen_hub.client.label.keyring import KeyRing
from veen_hub.client.label.label_state import LabelState
from veen_hub.client.label.turn import Turn
from veen_hub.client.state.records import LabelRecord, decode_record
from veen_hub.client.wire.connection import HubConnection

T = TypeVar("T")
SEARCH_PAGE_ENTRIES: Final = 500
"""Entries per page when only their receipts are needed."""


class LabelLog:
    """One label's verified prefix and state, shared by all readers and writers of a connection."""

    def __init__(
        self, connection: HubConnection, label: Label, client: PipelinedClient, ring: KeyRing
    ) -> None:
        self.connection = connection
        self.label = label
        self.client = client
        self.ring = ring
        self.prefix = Turn()
        self.receipts_read: dict[LeafHash, Receipt] = {}
        """Receipts of own pending messages that a reader has read before the hub's answer arrived."""
        self.followers = Followers()
        self.state = LabelState(self)
        self._head_checked = False

    @classmethod
    def load(cls, connection: HubConnection, label: Label, origin: LabelOrigin | None) -> LabelLog:
        """Load the label from the state store, or create it. Reads files; run it in a thread."""
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

    # --- the head

    @property
    def is_head_checked(self) -> bool:
        """Whether ``check_head_once`` has nothing left to do."""
        return self._head_checked

    async def check_head_once(self) -> None:
        """Check once per connection that the hub still has the furthest receipt held (§9)."""
        if not self._head_checked:
            async with self.prefix:
                await self.check_head()
            self._head_checked = True

    async def check_head(self, *, once: bool = False) -> None:
        """Check that the furthest receipt held is still in the log, unchanged; ``once``: without retries.

        A hub that shows another receipt and then stops answering has diverged all the same.
        """
        head = self.client.state.head
        if head is None:
            return
        call = partial(self.connection.api.receipt_or_none, self.label, head.stream_seq)
        shown = await (call() if once else self.connection.ask(call))
        if shown is None and (primary := self.connection.status.replica_of) is not None:
            raise Unreachable(
                f"the replica does not have entry {head.stream_seq} of label {self.label.hex()} yet",
                action=f"wait until the replica has caught up, or use the primary at {primary}",
            )
        if shown is None:
            lost = DivergenceError(
                f"the hub signed a receipt for stream_seq {head.stream_seq} of label {self.label.hex()} "
                "and has no such entry any more",
                held=head.encode(),
            )
            raise await save_evidence(self.connection, lost)
        await self._verifying(lambda: self._compare(shown))

    async def _compare(self, shown: Receipt) -> None:
        self.client.verify_own(shown)

    async def verifying(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step that verifies the hub's answer and then changes state, holding ``prefix``."""
        async with self.prefix:
            return await self._verifying(step)

    async def _verifying(self, step: Callable[[], Awaitable[T]]) -> T:
        """Repeat the step once if the hub has a new key; add evidence to a divergence."""
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
        """Return whether the hub has gained a key, e.g. by a restart after a rotation (§8.4)."""
        await self.connection.refresh()
        if self.client.trust.identity == self.connection.status.identity:
            return False
        self.client.trust = self.connection.trust(self.client.trust.origin)
        return True

    # --- entries

    async def page(
        self, start: StreamSeq, most: int, end: StreamSeq | None = None
    ) -> tuple[Sequence[Entry], bool]:
        """Fetch entries, not yet verified: pass them to ``accept``. Also returns whether more follow."""
        known = self.client.size if end is None else min(self.client.size, end)
        entries, more = await self.connection.ask(
            lambda: self.connection.api.page(self.label, start, most, end=end)
        )
        if not more and (after := start + len(entries)) <= known:
            raise Misbehaved(
                f"the hub says its log ends before entry {after}, but showed {known} entries before"
            )
        return entries, more

    async def accept(
        self, entries: Sequence[Entry], reader: PipelinedClient | None
    ) -> PipelinedClient | None:
        """Verify consecutive entries; returns the reader to pass in with the entries that follow."""
        return await self.verifying(lambda: self._accept(entries, reader))

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
        """Verify entries of the verified prefix: the trees before and after them must be part of its tree."""
        if reader is None or reader.size != before:
            known = self.client.known_tree(before)
            reader = self.client.at(before, await self._consistency(before) if known is None else None)
        reader.trust = self.client.trust
        after = StreamSeq(before + len(entries))
        known, proof = self.client.known_tree(after), None
        if known is None:
            proof = asyncio.create_task(self._consistency(after))  # fetched meanwhile
        try:
            await self.connection.workers.run_sized(len(entries), reader.accept_page, entries)
            if known is None or known.root != reader.root:
                shown = entries[-1].receipt_bytes
                self.client.verify_part(reader.tree, await (proof or self._consistency(after)), shown)
        finally:
            if proof is not None:
                proof.cancel()
                await asyncio.gather(proof, return_exceptions=True)
        return reader

    async def _accept_beyond(self, entries: Sequence[Entry]) -> None:
        await self.connection.workers.run_sized(len(entries), self._accept_page, entries)
        await self.state.note_progress()

    def _accept_page(self, entries: Sequence[Entry]) -> None:
        """Accept a page, to the end even if cancelled: a settled message always has its receipt."""
        own = set(self.client.pending_leaves)
        self.client.accept_page(entries)
        if own:
            receipts = (entry.receipt for entry in entries)
            self.receipts_read |= {
                receipt.leaf_hash: receipt for receipt in receipts if receipt.leaf_hash in own
            }

    # --- the prefix

    async def _ask(self, last: StreamSeq, call: Callable[[], Awaitable[T]]) -> T:
        """Ask about entries up to ``last``; if the hub denies them, check that it has not lost them."""
        try:
            return await self.connection.ask(call)
        except NotFound:
            await self.check_head()
            if last <= self.client.size:
                raise Misbehaved(
                    f"the hub says it has no entry {last}, but showed {self.client.size} entries before"
                ) from None
            raise

    async def fetch(self, stream_seq: StreamSeq) -> Receipt:
        """Fetch a receipt, not yet verified: pass it to ``verify``."""
        return await self._ask(stream_seq, lambda: self.connection.api.receipt(self.label, stream_seq))

    async def _proof(self, stream_seq: StreamSeq, tree_size: StreamSeq | None = None) -> MmrProof:
        last = stream_seq if tree_size is None else tree_size
        return await self._ask(last, lambda: self.connection.api.proof(self.label, stream_seq, tree_size))

    async def _consistency(self, size: StreamSeq, to: StreamSeq | None = None) -> MmrConsistency | None:
        """Fetch a consistency proof from ``size`` to ``to`` or to the prefix; None if none is needed."""
        small, large = size, self.client.size if to is None else to
        if small in (0, large):
            return None
        return await self._ask(large, lambda: self.connection.api.consistency(self.label, small, large))

    async def _extend(self, receipt: Receipt) -> None:
        """Extend the verified prefix to a receipt beyond it; the caller holds ``prefix``."""
        head = self.client.state.head
        furthest = StreamSeq(max(self.client.size, head.stream_seq if head is not None else NO_ENTRIES))
        proof, consistency = await asyncio.gather(
            self._proof(receipt.stream_seq), self._consistency(furthest, receipt.stream_seq)
        )
        self.client.extend(receipt, proof, consistency)
        await self.state.note_progress()

    async def include(self, receipt: Receipt) -> None:
        """Verify a receipt within or beyond the prefix; the caller holds ``prefix``."""
        if receipt.stream_seq > self.client.size:
            await self._extend(receipt)
            return
        proof, consistency = await asyncio.gather(
            self._proof(receipt.stream_seq), self._consistency(receipt.stream_seq)
        )
        self.client.verify_within(receipt, proof, consistency)

    async def catch_up(self, receipt: Receipt) -> None:
        """Settle a pending MSG whose receipt is beyond entries not read; the caller holds ``prefix``."""
        proof, consistency = await asyncio.gather(
            self._proof(receipt.stream_seq), self._consistency(self.client.size, receipt.stream_seq)
        )
        self.client.catch_up(receipt, proof, consistency)

    async def confirm(self, receipt: Receipt) -> None:
        """Settle a pending MSG within the prefix; the caller holds ``prefix``."""
        proof, consistency = await asyncio.gather(
            self._proof(receipt.stream_seq), self._consistency(receipt.stream_seq)
        )
        self.client.confirm(receipt, proof, consistency)

    # --- verified answers

    async def receipt(self, stream_seq: StreamSeq) -> Receipt:
        """Return the receipt of an entry, verified."""
        found = await self.fetch(stream_seq)
        await self.verify(found)
        return found

    async def verify(self, receipt: Receipt) -> None:
        """Verify a receipt from any source against this log."""
        await self.verifying(lambda: self.include(receipt))

    async def proof(self, stream_seq: StreamSeq, tree_size: StreamSeq | None = None) -> MmrProof:
        """Return an inclusion proof, verified against the receipt that completed the tree (B10)."""
        size = stream_seq if tree_size is None else tree_size
        leaf = await self.receipt(stream_seq)
        whole = leaf if size == stream_seq else await self.receipt(size)
        proof = await self._proof(stream_seq, tree_size)
        verify_inclusion(proof, whole.mmr_root, stream_seq, leaf.leaf_hash, size)
        return proof

    async def consistency(self, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
        """Return a consistency proof, verified against both receipts, which are verified too (B11)."""
        small, large = await self.receipt(from_seq), await self.receipt(to_seq)
        found = await self._ask(to_seq, lambda: self.connection.api.consistency(self.label, from_seq, to_seq))
        verify_consistency(found, small.mmr_root, large.mmr_root)
        return found

    async def checkpoint(self, upto_seq: StreamSeq = NO_ENTRIES) -> Checkpoint | None:
        """Return the checkpoint at ``upto_seq``, verified, or the latest (0); None if there is none.

        A latest checkpoint older than one seen before is refused.
        """
        seen = self.client.state.checkpointed
        found = await self.connection.ask(lambda: self.connection.api.checkpoint(self.label, upto_seq))
        if found is None:
            if seen and upto_seq in (0, seen):
                raise Misbehaved(f"the hub says it has no checkpoint, but showed one at entry {seen} before")
            return None
        await self._verify_checkpoint(found, seen if upto_seq == 0 else NO_ENTRIES)
        return found

    async def verify_checkpoint(self, shown: Checkpoint) -> None:
        """Verify a checkpoint from any source against this log.

        If it is older than the last one seen, the hub's latest checkpoint is verified too.
        """
        seen = self.client.state.checkpointed
        await self._verify_checkpoint(shown, NO_ENTRIES)
        if shown.upto_seq < seen:
            await self.checkpoint()

    async def _verify_checkpoint(self, checkpoint: Checkpoint, seen: StreamSeq) -> None:
        last = await self.fetch(checkpoint.upto_seq)
        await self.verifying(lambda: self._accept_checkpoint(checkpoint, last, seen))

    async def _accept_checkpoint(self, checkpoint: Checkpoint, last: Receipt, seen: StreamSeq) -> None:
        await self.include(last)
        part = self.client.at(last.stream_seq, await self._consistency(last.stream_seq))
        self.client.accept_checkpoint(checkpoint, part.tree, last, now=self.connection.time.now(), seen=seen)
        await self.state.note_progress()

    async def verify_label_head(self, shown: HubProofResponse) -> None:
        """Verify that a label's head in the hub log is the tree of this log at ``upto_seq`` (RESOLUTIONS P1).

        The caller has verified that the hub log contains the head.
        """
        await self.verifying(lambda: self._verify_label_head(shown))

    async def _verify_label_head(self, shown: HubProofResponse) -> None:
        upto_seq = shown.head.upto_seq
        if upto_seq > self.client.size:
            await self._extend(await self.fetch(upto_seq))
        ours = self.client.at(upto_seq, await self._consistency(upto_seq))
        if ours.root == shown.head.mmr_root:
            return
        receipt, fork = self.client.state.head, None
        with contextlib.suppress(VeenError):  # without an answer, show the furthest receipt
            receipt = await self.connection.api.receipt(self.label, upto_seq)
            fork = find_label_fork(self.connection.status.identity, receipt, shown)
        found = DivergenceError(
            f"the hub log has another root of label {self.label.hex()} at {upto_seq} than the label's own "
            "log (RESOLUTIONS P1)",
            held=receipt.encode() if receipt is not None else b"",
            shown=shown.encode(),
        )
        raise await save_evidence(self.connection, found, fork=fork)

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
            raise Misbehaved(
                f"the hub says its newest entry is {newest.stream_seq}, but showed {known} entries before"
            )
        await self.verify(newest)
        return newest

    async def _search_head(self, known: int) -> Receipt | None:
        """Find the newest receipt by bisection, at a hub that does not return it on request.

        Core §10.4 has no request for the newest receipt; this project's hub adds one.
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
