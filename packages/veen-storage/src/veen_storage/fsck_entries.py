"""What fsck verifies of each entry by itself: frame, hash, form, invariants, signatures (§4.8.1, §7).

Nothing here looks at the entry before: that is ``fsck_label``. Work comes as ``Span``s and goes back as
``Checked``, so that it can be done in any process; a worker reads the files itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from veen_core import entry as entries
from veen_core import hub_identity, msg
from veen_core.cap import CapToken, verify_token
from veen_core.chunk import PrunedEntry
from veen_core.entry import FRAME_SIZE, Entry, FrameHeader, decode_frame, verify_authorize
from veen_core.errors import DecodeError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import (
    NOTHING,
    AuthRef,
    ClientId,
    ClientSeq,
    EntryHash,
    Label,
    LeafHash,
    MmrRoot,
    StreamSeq,
    UnixTime,
)
from veen_core.invariants import INVARIANTS, Before, Pair
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_storage.chunk_files import ChunkFile, read_pruned_chunk
from veen_storage.errors import DamageError
from veen_storage.fsck_report import Fault
from veen_storage.registry import Registry

ALONE: Final = tuple((name, check) for name, check in INVARIANTS if name in {"I1", "I2", "I4", "I11"})
"""Invariants that need nothing but the pair. Decoding is I10; I3, I6, I8 and I9 are the label's."""
NEVER: Final = StreamSeq(2**64 - 1)


class Fact(NamedTuple):
    """What the label needs to know of one entry."""

    seq: StreamSeq
    offset: int
    size: int
    has_receipt: bool
    """Whether the receipt's fields can be relied on to go on with the label."""
    has_content: bool
    """The same for what is from the MSG or token."""
    flags: int
    entry_hash: EntryHash
    leaf: LeafHash
    root: MmrRoot
    hub_ts: UnixTime
    client_id: ClientId
    client_seq: ClientSeq
    prev_ack: StreamSeq
    auth_ref: AuthRef | None
    token: bytes


_NO_HASH: Final = bytes(32)
NO_CLIENT: Final = ClientId(_NO_HASH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A run of entries of one label in one file."""

    path: Path
    label: Label
    frames: tuple[tuple[int, int], ...]
    """Offset and size of each; of a pruned chunk none, all of it is meant."""
    compressed: bool = False
    pruned: bool = False
    inline: tuple[bytes, ...] = ()
    """The frames themselves, where they are not consecutive in a file: in the journal."""
    sigs_from: StreamSeq = NOTHING
    """Signatures of entries from here on are verified."""

    @property
    def weight(self) -> int:
        return max(len(self.frames), 1)


@dataclass(slots=True)
class Checked:
    """What a span came to."""

    facts: list[Fact] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    signatures: int = 0


@dataclass(frozen=True, slots=True)
class Trust:
    """What entries are verified against."""

    identity: HubIdentity
    registry: Registry

    @property
    def before(self) -> Before:
        return Before(
            log=Mmr(),
            last_client_seq=ClientSeq(0),
            profiles=(self.registry.profile.profile_id,),
            limits=self.registry.limits,
        )


def check_span(trust: Trust, span: Span) -> Checked:
    """Verify every entry of a span."""
    if span.pruned:
        return _check_pruned(trust, span)
    checked, before = Checked(), trust.before
    try:
        for offset, frame in _frames(span):
            checked.facts.append(_Check(trust, before, span, offset, checked).run(frame))
    except (DamageError, OSError) as exc:
        at = exc.offset if isinstance(exc, DamageError) else None
        what = exc.what if isinstance(exc, DamageError) else str(exc)
        checked.faults.append(Fault(file=span.path.name, offset=at, label=span.label, what=what))
    return checked


def _frames(span: Span) -> Iterator[tuple[int, bytes]]:
    if span.inline:
        yield from ((offset, frame) for (offset, _), frame in zip(span.frames, span.inline, strict=True))
        return
    if not span.frames:
        return
    first, (last, size) = span.frames[0][0], span.frames[-1]
    with ChunkFile(span.path, compressed=span.compressed) as chunk:
        data = chunk.read(first, last + size - first)
    for offset, size in span.frames:
        yield offset, data[offset - first : offset - first + size]


class _Check:
    """One entry: every rule that it breaks is a fault of its own."""

    __slots__ = ("_before", "_checked", "_header", "_offset", "_span", "_trust")

    def __init__(self, trust: Trust, before: Before, span: Span, offset: int, checked: Checked) -> None:
        self._trust = trust
        self._before = before
        self._span = span
        self._offset = offset
        self._checked = checked

    def run(self, frame: bytes) -> Fact:
        self._header = header = decode_frame(frame)  # the planner has read it before
        split = FRAME_SIZE + header.msg_len
        msg_bytes, receipt_bytes = frame[FRAME_SIZE:split], frame[split:]
        if header.label != self._span.label:
            self._fault("the frame is of another label")
        whole = entries.entry_hash(msg_bytes, receipt_bytes) == header.entry_hash
        if not whole:
            self._fault("entry_hash does not match the bytes of the entry (§4.8.1)")
        sigs = header.stream_seq >= self._span.sigs_from
        receipt = self._receipt(receipt_bytes)
        if receipt is not None and (sigs or not whole):
            signed = self._verified(partial(hub_identity.verify_receipt, self._trust.identity, receipt))
            receipt = receipt if whole or signed else None
        content = self._content(msg_bytes, receipt_bytes, receipt, sigs=sigs and whole)
        return make_fact(header, self._offset, len(frame), receipt, content)

    def _receipt(self, data: bytes) -> Receipt | None:
        try:
            receipt = Receipt.decode(data)
        except DecodeError as exc:
            self._fault(str(exc))
            return None
        if (receipt.label, receipt.stream_seq) != (self._header.label, self._header.stream_seq):
            self._fault("the RECEIPT is of another label or stream_seq than the frame (§4.8.1)")
            return None
        return receipt

    def _content(
        self, msg_bytes: bytes, receipt_bytes: bytes, receipt: Receipt | None, *, sigs: bool
    ) -> msg.Msg | bytes | None:
        """The MSG, or a token's bytes, if they are usable."""
        try:
            if self._header.flags & entries.FLAG_AUTHORIZE:
                return self._token(msg_bytes, receipt_bytes)
            content = msg.Msg.decode(msg_bytes)
        except VeenError as exc:
            self._fault(str(exc))
            return None
        if receipt is not None:
            pair = Pair(msg_bytes, receipt_bytes, content, receipt)
            broken = [(name, why) for name, check in ALONE if (why := check(pair, self._before)) is not None]
            for name, why in broken:
                self._fault(f"{name}: {why} (§7)")
        if sigs:
            self._verified(partial(msg.verify_signature, content, msg_bytes))
        return content

    def _token(self, token_bytes: bytes, receipt_bytes: bytes) -> bytes:
        held = self._header
        token = verify_authorize(Entry(held.label, held.stream_seq, token_bytes, receipt_bytes, held.flags))
        verify_token(token, self._trust.registry.limits)
        return token_bytes

    def _verified(self, verify: Callable[[], object]) -> bool:
        self._checked.signatures += 1
        try:
            verify()
        except VeenError as exc:
            self._fault(str(exc))
            return False
        return True

    def _fault(self, what: str) -> None:
        self._checked.faults.append(
            Fault(
                file=self._span.path.name,
                offset=self._offset,
                label=self._span.label,
                seq=self._header.stream_seq,
                what=what,
            )
        )


def make_fact(
    header: FrameHeader, offset: int, size: int, receipt: Receipt | None, content: msg.Msg | bytes | None
) -> Fact:
    """From what could be decoded."""
    usable = (receipt is not None, content is not None)
    leaf, root, hub_ts = (
        (receipt.leaf_hash, receipt.mmr_root, receipt.hub_ts)
        if receipt is not None
        else (LeafHash(_NO_HASH), MmrRoot(_NO_HASH), UnixTime(0))
    )
    head = (
        header.stream_seq,
        offset,
        size,
        *usable,
        header.flags,
        header.entry_hash,
        leaf,
        root,
        hub_ts,
    )
    if isinstance(content, msg.Msg):
        return Fact(*head, content.client_id, content.client_seq, content.prev_ack, content.auth_ref, b"")
    auth_ref = CapToken.decode(content).auth_ref if content is not None else None
    return Fact(*head, NO_CLIENT, ClientSeq(0), StreamSeq(0), auth_ref, content or b"")


# --- pruned chunks


def _check_pruned(trust: Trust, span: Span) -> Checked:
    """Every entry that is left of a pruned chunk: its leaf, profile and hub signature."""
    checked = Checked()

    def fault(what: str, seq: StreamSeq | None = None) -> None:
        checked.faults.append(Fault(file=span.path.name, label=span.label, seq=seq, what=what))

    try:
        head, kept = read_pruned_chunk(span.path)
    except (DamageError, OSError) as exc:
        fault(exc.what if isinstance(exc, DamageError) else str(exc))
        return checked
    if len(head.sizes) != len(kept):
        fault(f"lists {len(head.sizes)} sizes for {len(kept)} entries")
        return checked
    offset = 0
    for size, entry in zip(head.sizes, kept, strict=True):
        seq = entry.receipt.stream_seq
        if entry.receipt.label != span.label:
            fault("the RECEIPT is of another label", seq)
        if entry.profile_id != trust.registry.profile.profile_id:
            fault("I4: its profile is not the hub's (§7)", seq)
        if seq >= span.sigs_from:
            checked.signatures += 1
            try:
                hub_identity.verify_receipt(trust.identity, entry.receipt)
            except VeenError as exc:
                fault(str(exc), seq)
        checked.facts.append(_pruned_fact(entry, offset, size))
        offset += size
    return checked


def _pruned_fact(entry: PrunedEntry, offset: int, size: int) -> Fact:
    receipt = entry.receipt
    return Fact(
        receipt.stream_seq,
        offset,
        size,
        True,
        True,
        0,
        entry.entry_hash,
        receipt.leaf_hash,
        receipt.mmr_root,
        receipt.hub_ts,
        entry.client_id,
        entry.client_seq,
        entry.prev_ack,
        entry.auth_ref,
        b"",
    )
