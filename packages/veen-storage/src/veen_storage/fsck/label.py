"""One label, entry by entry: order, roots, cursors, chunk boundaries and the index that follows (§4.8.2, §7).

The label's own ``LabelCursor`` and ``Draft`` are what is folded, so that everything is judged by the code
that wrote it. How far that can be trusted is the fold's ``state``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from veen_core.chunk import chunk_name
from veen_core.entry import FLAG_AUTHORIZE, Entry
from veen_core.errors import VeenError
from veen_core.ids import ClientSeq, Label, StreamSeq
from veen_core.mmr import Node
from veen_storage.chunks.pruned_chunk import read_pruned_head
from veen_storage.chunks.retention import what_stays
from veen_storage.commit.changes import Placed, Prune, Sealed
from veen_storage.commit.writer import note_msg
from veen_storage.errors import DamageError
from veen_storage.fsck.artifacts import Beside, first_difference
from veen_storage.fsck.checkpoints import CheckpointFold
from veen_storage.fsck.entries import Fact
from veen_storage.fsck.files import Piece
from veen_storage.fsck.fold_context import Book
from veen_storage.fsck.pending import Folded, check_pending
from veen_storage.fsck.report import REPAIR, RESTORE
from veen_storage.fsck.state import FoldState
from veen_storage.index.records import LabelCursor

PATIENCE = 3
"""After so many wrong roots in a row, the fold is taken for lost."""


class LabelFold:
    """Folds one label; ``piece``, ``facts`` and ``piece_end`` for each of its files, then ``end``."""

    def __init__(self, book: Book, label: Label) -> None:
        self._book = book
        self._label = label
        self._pending = book.journal.of(label)
        self._files = book.log.of(label)
        self._state = FoldState(book, label)
        self._beside = Beside(
            book.layout,
            book.trust.identity,
            book.trust.registry,
            book.report,
            label,
            self._files,
            book.rewrites,
        )
        self._piece: Piece | None = None
        self._first = False
        self._skipping = False
        self._folded = Folded()
        self._checkpoints = CheckpointFold(book, label, self._state, self._beside, self._folded)

    # --- files

    def piece(self, piece: Piece | None) -> None:
        """A chunk file begins; None for entries that only the journal holds."""
        self._skipping = False
        if piece is None:
            self._piece = None
            return
        if piece.start < self._state.next:
            self._skipping = True
            what = f"is a stray: entries up to {self._state.next - 1} are in the chunks before it"
            self._book.fault(piece.path.name, what, label=self._label, seq=piece.start)
            self._state.distrust()
            return
        if piece.start > self._state.next:
            self._report_gap(piece.start)
            self._state.lose()
            self._state.next = piece.start
        if piece.limit is not None:
            self._note(
                f"{piece.path.name} goes on after byte {piece.limit} with a part of what the journal holds: "
                "opening writes it again"
            )
        self._piece, self._first = piece, True
        if self._state.cursor is None:
            self._state.resume(piece.start, self._beside)

    def _report_gap(self, start: StreamSeq) -> None:
        at = self._state.next
        for first, last in sorted(self._files.summaries):
            if first == at and last < start:
                what = "is missing: its summary is there"
                self._book.fault(chunk_name(self._label, first, last), what, label=self._label, seq=first)
                at = StreamSeq(last + 1)
        if at < start:
            name = chunk_name(self._label, at, StreamSeq(start - 1))
            what = f"no chunk holds entries {at} to {start - 1}"
            self._book.fault(name, what, label=self._label, seq=at)

    def piece_end(self, damage: DamageError | None, size: int) -> None:
        """A chunk file ends: where its name says, and at the end of an entry."""
        piece = self._piece
        if piece is None or self._skipping:
            return
        if damage is not None and not (piece.end is None and self._is_torn_write(piece, damage)):
            self._book.fault(
                piece.path.name, damage.what, offset=damage.offset, label=self._label, seq=self._state.next
            )
            rest = "the file" if piece.end is None else f"entry {piece.end}"
            self._note(
                f"{piece.path.name}: nothing from byte {damage.offset} to the end of {rest} was checked"
            )
            self._state.lose()
        elif piece.end is not None and self._state.next != piece.end + 1:
            what = f"ends after entry {self._state.next - 1}, its name says {piece.end}"
            self._book.fault(piece.path.name, what, offset=size, label=self._label, seq=self._state.next)
            self._state.lose()
        if piece.end is not None:
            self._state.next = StreamSeq(piece.end + 1)

    def _is_torn_write(self, piece: Piece, damage: DamageError) -> bool:
        """Bytes that begin an entry which the journal holds: opening cuts them and writes them again."""
        item = self._pending.entries.get(self._state.next)
        if item is None or item.batch <= self._book.applied or damage.offset is None:
            return False
        with piece.path.open("rb") as file:
            file.seek(damage.offset)
            torn = file.read()
        if not item.data.startswith(torn):
            return False
        self._note(
            f"{piece.path.name} ends in a part of entry {self._state.next}, which the journal holds whole"
        )
        return True

    # --- entries

    def facts(self, facts: Sequence[Fact]) -> None:
        if self._skipping:
            return
        for fact in facts:
            self._entry(fact)
        counters = self._book.report.counters
        counters.entries += len(facts)
        counters.bytes += sum(fact.size for fact in facts)
        self._state.pause()

    def _entry(self, fact: Fact) -> None:
        state = self._state
        if fact.seq != state.next:
            self._fault(fact, f"stands where entry {state.next} must be")
            state.lose()
        state.next = StreamSeq(fact.seq + 1)
        if (digest := self._pending.hashes.get(fact.seq)) is not None and digest != fact.entry_hash:
            self._fault(fact, "is not the entry that the journal holds")
            state.distrust()
        if not fact.has_receipt:
            state.lose()
        if state.cursor is None:
            return
        if state.exact and fact.seq >= state.ahead_from:
            state.step_aside()
        self._roll(fact)
        cursor, draft = state.cursor, state.draft
        before = cursor.log.size
        nodes = self._append(fact, cursor)
        entry = Entry(self._label, fact.seq, b"", b"", fact.flags)
        placed = Placed(cursor.number, entry, b"", draft.reserve(cursor, fact.size), cursor.hub_ts, nodes)
        draft.fill(cursor, placed, fact.entry_hash)
        self._content(fact, before, cursor)
        if fact.seq in self._files.checkpoints or fact.seq in self._pending.checkpoints:
            self._checkpoints.checkpoint(fact.seq)
        if state.wrong_roots >= PATIENCE:
            state.lose()

    def _append(self, fact: Fact, cursor: LabelCursor) -> list[Node]:
        if fact.hub_ts < cursor.hub_ts:
            self._fault(
                fact, f"hub_ts {fact.hub_ts} is before {cursor.hub_ts}, that of the entry before (H3)"
            )
        nodes = cursor.log.append(fact.leaf)
        if cursor.log.root == fact.root:
            self._state.wrong_roots = 0
        else:
            self._state.wrong_roots += 1
            self._fault(fact, "mmr_root does not follow from the log before it (I3)")
        cursor.hub_ts = fact.hub_ts
        return nodes

    def _content(self, fact: Fact, before: int, cursor: LabelCursor) -> None:
        if not fact.has_content:
            self._state.distrust()
        elif fact.flags & FLAG_AUTHORIZE:
            self._token(fact, cursor)
        else:
            if fact.prev_ack > before:
                self._fault(fact, f"I6: prev_ack {fact.prev_ack} is ahead of the stream's {before}")
            self._client(fact)
            note_msg(self._state.draft, cursor, fact.client_id, fact.client_seq, fact.auth_ref)

    def _client(self, fact: Fact) -> None:
        if self._state.seen is not None:
            last, known = (
                self._state.seen.get(fact.client_id, ClientSeq(0)),
                fact.client_id in self._state.seen,
            )
            self._state.seen[fact.client_id] = fact.client_seq
        else:
            held = self._state.draft.client(self._label, fact.client_id)
            last, known = held.last_seq if held is not None else ClientSeq(0), True
        if known and fact.client_seq <= last:
            self._fault(fact, f"I8: client_seq {fact.client_seq} was accepted before")
        elif known and fact.client_seq != last + 1:
            self._fault(fact, f"I9: client_seq {fact.client_seq} does not follow {last}")

    def _token(self, fact: Fact, cursor: LabelCursor) -> None:
        assert fact.auth_ref is not None
        if fact.auth_ref in self._book.tokens:
            self._fault(fact, "authorizes a token that was authorized before (H5)")
        self._book.tokens.add(fact.auth_ref)
        self._folded.tokens = True
        self._state.draft.note_token(fact.auth_ref, fact.token, cursor)

    # --- chunk boundaries

    def _roll(self, fact: Fact) -> None:
        """A chunk ends exactly where §4.8.2 says."""
        cursor = self._state.here
        must = self._state.draft.must_roll(cursor, fact.size)
        does = (
            (self._first and fact.seq > 1 and cursor.log.size >= cursor.chunk_start) if self._piece else must
        )
        self._first = False
        if must and not does:
            self._fault(fact, "must begin a new chunk (§4.8.2)")
            self._state.distrust()
        elif does and not must:
            self._fault(fact, "begins a new chunk where none ends (§4.8.2)")
            self._state.distrust()
        if does:
            self._seal()

    def _seal(self) -> None:
        cursor = self._state.here
        upto = cursor.log.stream_seq
        if cursor.checkpointed != upto:
            path = self._book.layout.checkpoint(self._label, upto)
            self._beside.fault(path, "is missing: a chunk ends here, and every chunk's end has one", seq=upto)
            self._book.bindings.complete = False
            self._beside.index_known = False
            self._state.distrust()
        start = cursor.chunk_start
        self._folded.sealed[start] = upto
        self._state.draft.seal_chunk(cursor)
        step = self._state.draft.changes.steps[-1]
        assert isinstance(step, Sealed)
        pruned = start in self._files.pruned
        self._beside.summary(step.summary, ahead=self._state.is_ahead, pruned=pruned)
        if start in self._files.growing and not self._state.is_ahead:
            name = chunk_name(self._label, start, None)
            self._book.leave_open(step, ("seal", self._label, start, upto), name)
        if pruned:
            self._prune(start, upto)

    def _prune(self, start: StreamSeq, end: StreamSeq) -> None:
        path = self._book.layout.pruned(self._label, start, end)
        try:
            head = read_pruned_head(path)
        except (OSError, VeenError) as exc:
            what = exc.what if isinstance(exc, DamageError) else str(exc)
            self._book.fault(path.name, what, offset=0, label=self._label, seq=start)
            self._state.distrust()
            return
        if (head.label, head.start_seq, head.end_seq) != (self._label, start, end):
            what = "is of other entries than its name says"
            self._book.fault(path.name, what, offset=0, label=self._label, seq=start)
            self._state.distrust()
        decision = Prune(label=self._label, start_seq=start, end_seq=end, pruned_at=head.pruned_at)
        if self._waits(decision):
            return
        self._state.draft.note_prune(decision)
        if start in self._files.logs or start in self._files.growing:
            step, name = self._state.draft.changes.steps[-1], chunk_name(self._label, start, end)
            self._book.leave_open(step, ("prune", self._label, start, end), name)
            self._check_stays(path, decision)

    def _waits(self, decision: Prune) -> bool:
        """Whether the file was written by a round that was cut off: the index does not know the decision.

        The file's ``pruned_at`` says which decision made it. The chunk goes only after the index knows.
        """
        start = decision.start_seq
        if start not in self._files.logs and start not in self._files.growing:
            return False
        items = self._pending.prunes.get(start, ())
        made_by = [item.batch for item in items if item.data == decision.encode()]
        return bool(made_by) and min(made_by) > self._book.applied

    def _check_stays(self, path: Path, decision: Prune) -> None:
        """The chunk is still there, and will go: what stays of it must be all of it."""
        zstd = self._book.trust.registry.zstd_level is not None
        try:
            right, held = what_stays(self._book.layout, decision, zstd=zstd).content, path.read_bytes()
        except (OSError, DamageError):
            return  # reported where the chunk was read, or its head
        if held != right:
            self._book.rewrites[path] = right
            self._book.fault(
                path.name,
                "is not what stays of its chunk, which is still there",
                offset=first_difference(held, right),
                label=self._label,
                seq=decision.start_seq,
                remedy=REPAIR,
            )

    # --- the end

    def end(self) -> None:
        """What only shows when everything of the label was seen."""
        piece, cursor = self._piece, self._state.cursor
        if piece is not None and piece.end is not None and not self._skipping:
            what = "has an end, and the chunk that must follow it is missing"
            self._book.fault(piece.path.name, what, label=self._label, seq=piece.end)
            self._state.distrust()
        if cursor is not None and not self._state.ever_lost:
            self._beside.end_index(cursor)
        self._beside.strays(self._state.next - 1 if self._state.ever_lost else 0)
        self._checkpoints.anchors()
        self._folded.last, self._folded.lost = StreamSeq(self._state.next - 1), self._state.ever_lost
        check_pending(self._book, self._label, self._folded)
        self._state.close_gap()
        if self._state.ever_lost:
            self._book.bindings.complete = False
        self._book.sizes[self._label] = self._state.next - 1
        self._book.report.counters.labels += 1

    # --- saying it

    def _note(self, note: str) -> None:
        self._book.report.notes.append(note)

    def _fault(self, fact: Fact, what: str, remedy: str = RESTORE) -> None:
        file = self._piece.path.name if self._piece is not None else "journal"
        item = self._pending.entries.get(fact.seq)
        if self._piece is None and item is not None:
            file = item.file
        self._book.fault(file, what, offset=fact.offset, label=self._label, seq=fact.seq, remedy=remedy)
