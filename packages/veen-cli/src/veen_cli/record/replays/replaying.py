"""Replay: the entries of several streams in order, each classified, none left out (SDR0 3.2.5, I1, I2).

The order is hub_commit_time, then the position of the stream, then epoch and entry. hub_ts never decreases
(H3), so this order keeps the order of every stream (I1). A replay reads a fixed range of each label; what is
pruned, sealed to another reader or not a recorder event appears as a row of that kind.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Final

from veen_cli.record.reading import FoundEntry, first_at, read_label
from veen_cli.record.session import RecordedLabel, RecorderSession
from veen_core.errors import DecodeError, OpenError
from veen_core.ids import Label, MmrRoot, StreamSeq
from veen_core.kinds import AnyValue
from veen_core.proof import MmrProof, verify_inclusion
from veen_hub.client import HubLogReader
from veen_overlays.live.opening import UNOPENED, open_entry
from veen_overlays.recorder.attribution import Attribution
from veen_overlays.recorder.records import KeyContinuity, MigrationRecord, RecordEvent

SPOT_RATE: Final = 16
"""With ``--verify spot``, one entry in this many is proved, and always the first and the last of a label."""


class Verify(enum.StrEnum):
    """How many inclusion proofs a replay fetches, in addition to the checks of every reader."""

    NONE = "none"
    SPOT = "spot"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRange:
    """The entries of one label to replay, and the tree that proofs lead to."""

    label: RecordedLabel
    first: int
    last: int
    tree_size: int
    root: str
    """Root of the tree, in hex: that of the checkpoint's head, or of the last receipt."""
    done: int = 0
    """The last entry that an interrupted replay has written already; 0 if it has written none."""

    @property
    def following(self) -> int:
        """The first entry that is not written yet."""
        return max(self.first, self.done + 1)

    @property
    def entries(self) -> int:
        """The number of entries that are not written yet."""
        return max(0, self.last - self.following + 1)


class RowKind(enum.StrEnum):
    """How a replay classifies an entry."""

    EVENT = "event"
    MIGRATION = "migration"
    LINK = "link"
    """A record.continuity.v1."""
    OTHER = "other"
    """Opened, but not a record of the recorder."""
    UNDECODABLE = "undecodable"
    UNOPENED = "unopened"
    PRUNED = "pruned"


@dataclass(slots=True)
class _Classifier:
    """Turns the entries of one label into rows, and keeps the links among them."""

    session: RecorderSession
    attribution: Attribution

    def row(self, found: FoundEntry) -> dict[str, Any]:
        receipt, label = found.receipt, found.label
        row: dict[str, Any] = {
            "kind": RowKind.PRUNED,
            "stream": label.stream,
            "epoch": int(label.epoch),
            "seq": receipt.stream_seq,
            "hub_commit_time": receipt.hub_ts * 1_000,
            "leaf_hash": receipt.leaf_hash.hex(),
            "receipt": receipt.encode().hex(),
        }
        return row if found.entry is None else row | self._content(found)

    def _content(self, found: FoundEntry) -> dict[str, Any]:
        assert found.entry is not None
        message = open_entry(found.entry, found.receipt, self.session.keys)
        if message.schema == UNOPENED:
            return {"kind": RowKind.UNOPENED}
        client = message.client_id
        signer = {"client_id": None if client is None else client.hex()}
        for shape in (RecordEvent, KeyContinuity, MigrationRecord):
            if message.schema == shape.SCHEMA:
                try:
                    record = shape.decode(message.body)
                except (DecodeError, OpenError) as exc:
                    return {"kind": RowKind.UNDECODABLE, "why": str(exc), **signer}
                return self._record(record, client) | signer
        return {"kind": RowKind.OTHER, "schema": message.schema.hex(), **signer}

    def _record(self, record: Any, client: bytes | None) -> dict[str, Any]:
        if isinstance(record, KeyContinuity):
            self.attribution.add(record, client)
            return {"kind": RowKind.LINK, "principal_id": record.principal_id.hex()}
        if isinstance(record, MigrationRecord):
            moved = {"from": list(record.from_), "to": list(record.to)}
            return {"kind": RowKind.MIGRATION, **moved, "reason": record.reason, "at": record.at}
        return {
            "kind": RowKind.EVENT,
            "subject_id": record.subject_id,
            "principal_id": record.principal_id.hex(),
            "event_type": record.event_type,
            "event_time": record.event_time,
            "origin": record.origin,
            "attributed": self.attribution.attributed(record, client),
            "payload": AnyValue().write_json(record.payload),
        }


def is_sampled(found: FoundEntry, span: LabelRange, verify: Verify) -> bool:
    """Return whether to prove the inclusion of an entry; ``spot`` chooses by the entry's leaf hash."""
    seq = found.receipt.stream_seq
    if verify is not Verify.SPOT:
        return verify is Verify.FULL
    return seq in (span.first, span.last) or hashlib.sha256(found.receipt.leaf_hash).digest()[0] < (
        256 // SPOT_RATE
    )


async def replay_label(
    session: RecorderSession, span: LabelRange, verify: Verify
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the rows of one label in order.

    An event that its principal did not sign may be linked by an entry before the range: the first such event
    makes the replay look for links there.
    """
    reader, classifier = session.hub.log_reader(), _Classifier(session, Attribution())
    searched = span.following == 1
    async with aclosing(read_label(session.hub, span.label, span.following, span.last)) as entries:
        async for found in entries:
            row = classifier.row(found)
            if row.get("attributed") is False and not searched:
                await _find_links(session, span, classifier)
                searched, row = True, classifier.row(found)
            if is_sampled(found, span, verify):
                proof = await _proof(reader, span, found)
                row |= {"proof": proof.encode().hex(), "proved_at": span.tree_size, "proved_root": span.root}
            yield row


async def _find_links(session: RecorderSession, span: LabelRange, classifier: _Classifier) -> None:
    async with aclosing(read_label(session.hub, span.label, 1, span.following - 1)) as entries:
        async for found in entries:
            classifier.row(found)


async def _proof(reader: HubLogReader, span: LabelRange, found: FoundEntry) -> MmrProof:
    """Fetch a proof, and verify it against the root of the range's tree."""
    seq, size = found.receipt.stream_seq, StreamSeq(span.tree_size)
    proof = await reader.proof(span.label.label, seq, size)
    verify_inclusion(proof, MmrRoot.from_hex(span.root), seq, found.receipt.leaf_hash, size)
    return proof


async def merged(
    session: RecorderSession, spans: Sequence[LabelRange], verify: Verify
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the rows of all labels in the order of the module's first lines."""
    async with AsyncExitStack() as stack:
        sources = [
            await stack.enter_async_context(aclosing(replay_label(session, span, verify)))
            for span in spans
            if span.entries
        ]
        positions = [(span.label.position, int(span.label.epoch)) for span in spans if span.entries]
        heads = [await anext(source, None) for source in sources]
        while True:
            waiting = [
                ((row["hub_commit_time"], *positions[at], row["seq"]), at)
                for at, row in enumerate(heads)
                if row is not None
            ]
            if not waiting:
                return
            _, at = min(waiting)
            row, heads[at] = heads[at], await anext(sources[at], None)
            assert row is not None
            yield row


Sizes = Mapping[Label, tuple[int, str]]
"""For each label: the number of entries to replay from, and the root of their tree in hex."""


def ranges_by_seq(
    labels: Sequence[RecordedLabel], sizes: Sizes, first: int, last: int | None
) -> list[LabelRange]:
    """Return the entries ``first`` to ``last``, both included, of each label."""
    ends = {label: size if last is None else min(last, size) for label, (size, _) in sizes.items()}
    return [_range(each, sizes, first, ends[each.label]) for each in labels]


async def ranges_by_time(
    session: RecorderSession, labels: Sequence[RecordedLabel], sizes: Sizes, start: int, end: int | None
) -> list[LabelRange]:
    """Return the entries with hub_commit_time in [start, end] of each label, found by binary search."""
    found = []
    for each in labels:
        size = sizes[each.label][0]
        first = await first_at(session.hub, each, start, size) if size else 1
        after = await first_at(session.hub, each, end + 1, size) if size and end is not None else size + 1
        found.append(_range(each, sizes, first, after - 1))
    return found


def _range(label: RecordedLabel, sizes: Sizes, first: int, last: int) -> LabelRange:
    size, root = sizes[label.label]
    return LabelRange(label=label, first=first, last=last, tree_size=size, root=root)
