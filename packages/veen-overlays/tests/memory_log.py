"""A label of a hub in memory, with real keys, sealed messages, receipts and proofs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from veen_core import (
    DEFAULT_PROFILE,
    Binding,
    Checkpoint,
    ClientId,
    DhKey,
    DhSecret,
    Entry,
    Label,
    LeafHash,
    Mmr,
    MmrConsistency,
    MmrProof,
    Msg,
    PayloadHeader,
    Receipt,
    SigningKey,
    SigningSeed,
    StreamSeq,
    prove_consistency,
    prove_inclusion,
    seal_msg,
)
from veen_core.hashing import H, u64be
from veen_core.ids import ClientSeq, UnixTime
from veen_core.receipt import sign_receipt
from veen_overlays.schema.record import Record

LABEL = Label(b"\x0f" * 32)
READER_SECRET = DhSecret(b"\x02" * 32)
READER = DhKey(READER_SECRET)
HUB = SigningKey(SigningSeed(b"\x03" * 32))
WRITER = SigningKey(SigningSeed(b"\x04" * 32))


class MemoryLog:
    """A log of one label with one writer."""

    def __init__(self, label: Label = LABEL, hub: SigningKey = HUB, writer: SigningKey = WRITER) -> None:
        self.label, self.hub, self.writer = label, hub, writer
        self.now = UnixTime(1_700_000_000)
        """hub_ts of the next receipt."""
        self.entries: list[Entry] = []
        self.mmr = Mmr()
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.read = 0
        """Number of entries that were read."""
        self._grown = asyncio.Condition()

    # --- writing

    def seal(self, record: Record, reader: DhKey = READER, parent_id: LeafHash | None = None) -> Msg:
        """Seal a record as the writer's next message."""
        seq = self.mmr.size
        binding = Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=self.label,
            client_id=ClientId(self.writer.public),
            client_seq=ClientSeq(seq + 1),
            prev_ack=StreamSeq(seq),
        )
        header = PayloadHeader(schema=record.schema_id, parent_id=parent_id)
        ephemeral = DhSecret(H(b"ephemeral" + u64be(seq)))
        return seal_msg(
            self.writer,
            reader.public,
            binding,
            header,
            record.encode(),
            profile=DEFAULT_PROFILE,
            ephemeral=ephemeral,
        ).msg

    def append(self, msg: Msg) -> Receipt:
        for node in self.mmr.append(msg.leaf_hash):
            self.nodes[node.height, node.index] = node.hash
        receipt = sign_receipt(
            self.hub,
            Receipt(
                label=self.label,
                stream_seq=self.mmr.stream_seq,
                leaf_hash=msg.leaf_hash,
                mmr_root=self.mmr.root,
                hub_ts=self.now,
            ),
        )
        self.entries.append(Entry(self.label, receipt.stream_seq, msg.encode(), receipt.encode()))
        return receipt

    def write(self, *records: Record) -> None:
        for record in records:
            self.append(self.seal(record))

    async def submit(self, msg: Msg) -> Receipt:
        receipt = self.append(msg)
        async with self._grown:
            self._grown.notify_all()
        return receipt

    # --- reading

    async def head(self, label: Label) -> Receipt | None:  # noqa: ARG002 - it has one label
        return self.entries[-1].receipt if self.entries else None

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:  # noqa: ARG002
        found = self.entries[from_seq - 1 : from_seq - 1 + max_items]
        self.read += len(found)
        return found

    async def follow(self, label: Label, from_seq: StreamSeq) -> AsyncIterator[Entry]:  # noqa: ARG002
        at = from_seq - 1
        while True:
            async with self._grown:
                while len(self.entries) <= at:
                    await self._grown.wait()
            self.read += 1
            yield self.entries[at]
            at += 1

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:  # noqa: ARG002
        return self.entries[stream_seq - 1].receipt

    async def proof(
        self,
        label: Label,  # noqa: ARG002
        stream_seq: StreamSeq,
        tree_size: StreamSeq | None = None,
    ) -> MmrProof:
        return prove_inclusion(lambda h, i: self.nodes[h, i], stream_seq, tree_size)

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:  # noqa: ARG002
        return prove_consistency(lambda h, i: self.nodes[h, i], from_seq, to_seq)

    async def checkpoint(self, label: Label) -> Checkpoint | None:  # noqa: ARG002
        return None
