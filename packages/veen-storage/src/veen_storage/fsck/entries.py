"""What fsck verifies of each entry by itself: frame, hash, form, invariants, signatures (§4.8.1, §7).

Nothing here looks at the entry before: that is ``label``. Work comes as ``Span``s and goes back as
``Checked``, so that it can be done in any process; a worker reads the files itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from veen_core import entry as entries
from veen_core import hub_identity, keys, msg
from veen_core import receipt as receipts
from veen_core.cap import CapToken, verify_token
from veen_core.chunk import PrunedEntry
from veen_core.entry import FRAME_SIZE, Entry, FrameHeader, decode_frame, verify_authorize
from veen_core.errors import DecodeError, IdentityError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import (
    NO_ENTRIES,
    AuthRef,
    ClientId,
    ClientSeq,
    EntryHash,
    HubPk,
    Label,
    LeafHash,
    MmrRoot,
    Signature,
    StreamSeq,
    UnixTime,
    VerifyKey,
)
from veen_core.invariants import INVARIANTS, Before, Pair
from veen_core.mmr import Mmr
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.chunks.pruned_chunk import read_pruned_chunk
from veen_storage.disk.registry import Registry
from veen_storage.errors import DamageError
from veen_storage.fsck.report import Fault

ALONE: Final = tuple((name, check) for name, check in INVARIANTS if name in {"I1", "I2", "I4", "I11"})
"""Invariants that need nothing but the pair. Decoding is I10; I3, I6, I8 and I9 are the label's."""
NEVER: Final = StreamSeq(2**64 - 1)


class Fact(NamedTuple):
    """What the label needs to know of one entry."""

    seq: StreamSeq
    offset: int
    """In its file, to say where; of a pruned entry in what was kept."""
    size: int
    """Of the frame, also of one that was pruned."""
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
    sigs_from: StreamSeq = NO_ENTRIES
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes facts travel packed: 3 µs an entry instead of 16."""
        tokens = [fact.token for fact in self.facts if fact.token]
        return _unpack, (b"".join(map(_pack, self.facts)), tokens, self.faults, self.signatures)


_FACT: Final = struct.Struct(">QQI????B32s32s32sQ32sQQ32s")


def _pack(fact: Fact) -> bytes:
    optional = (fact.auth_ref is not None, bool(fact.token))
    head = (fact.seq, fact.offset, fact.size, fact.has_receipt, fact.has_content, *optional, fact.flags)
    middle = (fact.entry_hash, fact.leaf, fact.root, fact.hub_ts)
    writer = (fact.client_id, fact.client_seq, fact.prev_ack, fact.auth_ref or _NO_HASH)
    return _FACT.pack(*head, *middle, *writer)


def _unpack(packed: bytes, tokens: list[bytes], faults: list[Fault], signatures: int) -> Checked:
    """Hashes come back as plain bytes: equal to what they were, and all that the fold needs."""
    rest = iter(tokens)
    facts = [
        Fact._make((*row[:5], *row[7:15], row[15] if row[5] else None, next(rest) if row[6] else b""))
        for row in _FACT.iter_unpack(packed)
    ]
    return Checked(facts, faults, signatures)


@dataclass(frozen=True, slots=True)
class Trust:
    """What entries are verified against."""

    identity: HubIdentity
    registry: Registry
    _likely: dict[UnixTime, HubPk] = field(default_factory=dict, compare=False, repr=False)

    def likely_key(self, hub_ts: UnixTime) -> HubPk:
        """The key that signs at a time, remembered for the last one asked for."""
        if hub_ts not in self._likely:
            self._likely.clear()
            self._likely[hub_ts] = self.identity.signing_key_at(hub_ts).hub_pk
        return self._likely[hub_ts]

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
    check = _SpanCheck(trust, span)
    try:
        for offset, frame in _frames(span):
            check.checked.facts.append(check.entry(offset, frame))
    except (DamageError, OSError) as exc:
        at = exc.offset if isinstance(exc, DamageError) else None
        what = exc.what if isinstance(exc, DamageError) else str(exc)
        check.checked.faults.append(Fault(file=span.path.name, offset=at, label=span.label, what=what))
    check.signatures()
    return check.checked


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


class _Signed(NamedTuple):
    """A signature to be verified."""

    offset: int
    seq: StreamSeq
    key: VerifyKey
    digest: bytes
    sig: Signature
    receipt: Receipt | None
    """If it is a hub's: another key may have made it."""


class _SpanCheck:
    """The entries of one span: every rule that one breaks is a fault of its own.

    Signatures are put aside and verified in one go: between other work each costs a fifth more.
    """

    def __init__(self, trust: Trust, span: Span) -> None:
        self.checked = Checked()
        self._trust = trust
        self._before = trust.before
        self._span = span
        self._signed: list[_Signed] = []
        self._offset = 0
        self._seq = NO_ENTRIES

    def entry(self, offset: int, frame: bytes) -> Fact:
        header = decode_frame(frame)  # the planner has read it before
        self._offset, self._seq = offset, header.stream_seq
        split = FRAME_SIZE + header.msg_len
        msg_bytes, receipt_bytes = frame[FRAME_SIZE:split], frame[split:]
        if header.label != self._span.label:
            self._fault("the frame is of another label")
        whole = entries.entry_hash(msg_bytes, receipt_bytes) == header.entry_hash
        if not whole:
            self._fault("entry_hash does not match the bytes of the entry (§4.8.1)")
        sigs = whole and header.stream_seq >= self._span.sigs_from
        receipt = self._receipt(header, receipt_bytes, whole=whole, sigs=sigs)
        if header.flags & entries.FLAG_AUTHORIZE:
            content: Msg | bytes | None = self._token(header, msg_bytes, receipt_bytes)
        else:
            content = self._msg(msg_bytes, receipt_bytes, receipt, sigs=sigs)
        return make_fact(header, offset, len(frame), receipt, content)

    def _receipt(self, header: FrameHeader, data: bytes, *, whole: bool, sigs: bool) -> Receipt | None:
        """The receipt, if it can be relied on: in a damaged entry only its signature tells."""
        try:
            receipt = Receipt.decode(data)
            if (receipt.label, receipt.stream_seq) != (header.label, header.stream_seq):
                raise DecodeError("RECEIPT is of another label or stream_seq than the frame (§4.8.1)")
            if not whole:
                hub_identity.verify_receipt(self._trust.identity, receipt)
        except VeenError as exc:
            self._fault(str(exc))
            return None
        if sigs:
            self._put_aside(receipt, data)
        return receipt

    def _put_aside(self, receipt: Receipt, data: bytes) -> None:
        try:
            key = self._trust.likely_key(receipt.hub_ts)
        except IdentityError as exc:
            self._fault(str(exc))
        else:
            digest = receipts.signing_digest(data)
            self._signed.append(_Signed(self._offset, self._seq, key, digest, receipt.hub_sig, receipt))

    def _msg(self, data: bytes, receipt_bytes: bytes, receipt: Receipt | None, *, sigs: bool) -> Msg | None:
        try:
            content = Msg.decode(data)
        except DecodeError as exc:
            self._fault(str(exc))
            return None
        if receipt is not None:
            pair = Pair(data, receipt_bytes, content, receipt)
            for name, check in ALONE:
                if (why := check(pair, self._before)) is not None:
                    self._fault(f"{name}: {why} (§7)")
        if sigs:
            digest = msg.signing_digest(data)
            self._signed.append(
                _Signed(self._offset, self._seq, content.client_id, digest, content.sig, None)
            )
        return content

    def _token(self, header: FrameHeader, token_bytes: bytes, receipt_bytes: bytes) -> bytes | None:
        entry = Entry(header.label, header.stream_seq, token_bytes, receipt_bytes, header.flags)
        try:
            verify_token(verify_authorize(entry), self._trust.registry.limits)
        except VeenError as exc:
            self._fault(str(exc))
            return None
        return token_bytes

    def signatures(self) -> None:
        """Verify what was put aside."""
        self.checked.signatures += len(self._signed)
        for signed in self._signed:
            try:
                keys.verify(signed.key, signed.digest, signed.sig, "MSG.sig §4.1")
            except VeenError as exc:
                self._offset, self._seq = signed.offset, signed.seq
                self._look_again(signed, str(exc))

    def _look_again(self, signed: _Signed, what: str) -> None:
        if signed.receipt is None:
            self._fault(what)
            return
        try:
            hub_identity.verify_receipt(self._trust.identity, signed.receipt)
        except VeenError as exc:
            self._fault(str(exc))

    def _fault(self, what: str) -> None:
        self.checked.faults.append(
            Fault(
                file=self._span.path.name,
                offset=self._offset,
                label=self._span.label,
                seq=self._seq,
                what=what,
            )
        )


def make_fact(
    header: FrameHeader, offset: int, size: int, receipt: Receipt | None, content: Msg | bytes | None
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
    if isinstance(content, Msg):
        return Fact(*head, content.client_id, content.client_seq, content.prev_ack, content.auth_ref, b"")
    auth_ref = CapToken.decode(content).auth_ref if content is not None else None
    return Fact(*head, NO_CLIENT, ClientSeq(0), StreamSeq(0), auth_ref, content or b"")


# --- pruned chunks


def _check_pruned(trust: Trust, span: Span) -> Checked:
    """Every entry that is left of a pruned chunk: its leaf, profile and hub signature."""
    checked = Checked()

    def fault(what: str, offset: int | None, seq: StreamSeq | None = None) -> None:
        checked.faults.append(Fault(file=span.path.name, offset=offset, label=span.label, seq=seq, what=what))

    try:
        head, kept = read_pruned_chunk(span.path)
    except DamageError as exc:
        fault(exc.what, exc.offset)
        return checked
    except OSError as exc:
        fault(str(exc), None)
        return checked
    if len(head.sizes) != len(kept):
        fault(f"lists {len(head.sizes)} sizes for {len(kept)} entries", 0)
        return checked
    for size, (place, entry) in zip(head.sizes, kept, strict=True):
        seq = entry.receipt.stream_seq
        if entry.receipt.label != span.label:
            fault("the RECEIPT is of another label", place, seq)
        if entry.profile_id != trust.registry.profile.profile_id:
            fault("I4: its profile is not the hub's (§7)", place, seq)
        if seq >= span.sigs_from:
            checked.signatures += 1
            try:
                hub_identity.verify_receipt(trust.identity, entry.receipt)
            except VeenError as exc:
                fault(str(exc), place, seq)
        checked.facts.append(_pruned_fact(entry, place, size))
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
