"""Vectors of bundles: whole bundles as their part files one after the other, and the objects inside (P6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from veen_core import hub_log
from veen_core.bundle import (
    AttachmentRule,
    BundleCounts,
    BundleError,
    BundleHeader,
    BundleTrust,
    BundleVerifier,
    HeadProof,
    IndexedAttachment,
    PartDigest,
    PartIndex,
    PartRow,
    PartTrailer,
    bundle_id,
    sign_bundle,
)
from veen_core.bundle.part import FOOTER_SIZE, MAGIC, attachment_head, encode_ending, event_head, trailer_size
from veen_core.consistency import prove_consistency
from veen_core.entry import Entry
from veen_core.errors import DecodeError, IdentityError, ProofError, QuorumError, SignatureError
from veen_core.hashing import H
from veen_core.ids import NO_BUNDLE, BundleId, ClientId, Coid, Epoch, HubId, NodeHash, StreamSeq, UnixTime
from veen_core.keys import SigningKey
from veen_core.mmr import root_of
from veen_core.msg import sign_msg
from veen_core.tlog import tree
from veen_core.tlog.policy import parse_policy

from . import cast
from .case import Bad, Context, Good, Object, decoded, read, unhex
from .hub_log import BOTH, HEADS, LOG, TREE, _note, _other_head

BRIDGE, OTHER_BRIDGE = cast.signer(0x71), cast.signer(0x72)
ATTACHMENT = b"the ciphertext of an attachment"
PINNED = {"pinned": cast.HUB_ID.hex(), "bridge": BRIDGE.public.hex()}
AT = {2: 0, 6: 2, 11: 5, 13: 6}
"""Place in the hub log of the label's head at each upto_seq."""


def entries(first: int, last: int) -> list[Entry]:
    return [LOG.entry(seq) for seq in range(first, last + 1)]


def content(
    first: int,
    events: Sequence[Entry],
    *,
    peaks: tuple[NodeHash, ...] | None = None,
    hub_ts: int = 0,
    attachments: Sequence[bytes] = (),
    index: Callable[[PartIndex], PartIndex] = lambda made: made,
) -> tuple[bytes, PartRow]:
    """Return the content of a part and its row; ``index`` may alter the index."""
    made, offsets, listed = bytearray(MAGIC), [], []
    for at, entry in enumerate(events):
        if at % 256 == 0:
            offsets.append(len(made))
        made += event_head(entry.msg_bytes, entry.receipt_bytes) + entry.msg_bytes + entry.receipt_bytes
    for each in attachments:
        made += attachment_head(len(each))
        listed.append(IndexedAttachment(coid=Coid(H(each)), offset=len(made), size=len(each)))
        made += each
    described = PartIndex(
        peaks=LOG.tree(first - 1).peaks if peaks is None else peaks,
        hub_ts=UnixTime(hub_ts),
        offsets=tuple(offsets),
        attachments=tuple(listed),
        unopened=0,
    )
    encoded = index(described).encode()
    made += encoded
    row = PartRow(
        first_seq=StreamSeq(first),
        last_seq=StreamSeq(first + len(events) - 1),
        attachments=len(attachments),
        index_size=len(encoded),
        size=len(made),
        digest=PartDigest(sha256(made).digest()),
    )
    return bytes(made), row


def head_proof(upto: int, to_seq: int | None = None) -> HeadProof:
    at = AT[upto]
    proof = hub_log.hashes(tree.prove_inclusion(TREE.lookup, at, len(HEADS)))
    grown = None
    if to_seq and to_seq < upto:
        grown = prove_consistency(LOG.lookup, StreamSeq(to_seq), StreamSeq(upto))
    return HeadProof(head=HEADS[at], index=at, proof=proof, consistency=grown)


def header(
    first: int,
    last: int,
    rows: Sequence[PartRow],
    events: Sequence[Entry],
    *,
    upto: int | None = None,
    attachments: Sequence[bytes] = (),
    previous: BundleId = NO_BUNDLE,
    **changes: Any,
) -> BundleHeader:
    """Return the header of entries ``first`` to ``last``; ``changes`` replace fields of it."""
    peaks = LOG.tree(first - 1).peaks
    counts = BundleCounts(
        events=last - first + 1,
        event_bytes=sum(len(each.msg_bytes) + len(each.receipt_bytes) for each in events),
        attachments=len(attachments),
        attachment_bytes=sum(map(len, attachments)),
        unopened=0,
    )
    times = [cast.BORN + first, cast.BORN + last] if last >= first else [cast.BORN + last] * 2
    made = BundleHeader(
        prev_bundle_id=previous,
        prev_in_label=previous,
        identity=cast.identity(),
        profile=cast.BULK,
        stream="orders",
        epoch=Epoch(0),
        label=cast.LABEL,
        from_seq=StreamSeq(first),
        to_seq=StreamSeq(last),
        from_ts=UnixTime(times[0]),
        to_ts=UnixTime(times[1]),
        counts=counts,
        root_before=root_of(peaks),
        peaks_before=peaks,
        root_after=LOG.tree(last).root,
        checkpoint=_note(0, 1),
        attachments=AttachmentRule.OPENED,
        bridge_id=ClientId(BRIDGE.public),
        exported_at=UnixTime(cast.BORN + 100),
        parts=tuple(rows),
        head=head_proof(upto or min(at for at in AT if at >= last), last),
    )
    return dataclasses.replace(made, **changes)


def files(
    made: BundleHeader, contents: Sequence[bytes], *, key: SigningKey = BRIDGE, numbers: Sequence[int] = ()
) -> list[bytes]:
    """Return the part files of a bundle; ``numbers`` replaces the numbers in their trailers."""
    signature = sign_bundle(key, made)
    return [
        each + encode_ending(PartTrailer(number=number, header=made, signature=signature))
        for number, each in zip(numbers or range(1, len(contents) + 1), contents, strict=True)
    ]


def case(parts: Sequence[bytes], **context: Any) -> tuple[bytes, Context]:
    return b"".join(parts), {"sizes": [len(each) for each in parts]} | PINNED | context


def one_part(first: int, last: int, **changes: Any) -> list[bytes]:
    """Return a bundle in one part; ``changes`` replace fields of its header."""
    events = entries(first, last)
    made, row = content(first, events)
    return files(header(first, last, [row], events, **changes), [made])


def two_parts() -> tuple[BundleHeader, list[bytes]]:
    a, b = entries(3, 7), entries(8, 11)
    first, first_row = content(3, a, attachments=[ATTACHMENT])
    second, second_row = content(8, b, hub_ts=cast.BORN + 7)
    made = header(3, 11, [first_row, second_row], [*a, *b], attachments=[ATTACHMENT])
    return made, [first, second]


# --- whole bundles


def open_file(data: bytes) -> tuple[PartTrailer, bytes]:
    """Return trailer and content of a part file."""
    size = trailer_size(data[-FOOTER_SIZE:])
    start = len(data) - FOOTER_SIZE - size
    return PartTrailer.decode(data[start:-FOOTER_SIZE]), data[:start]


def judge_bundle(wire: bytes, context: Context) -> Any:
    """Verify a bundle from its part files, which follow each other in ``wire``."""
    at, parts = 0, []
    for size in context["sizes"]:
        parts.append(open_file(wire[at : at + size]))
        at += size
    policy = parse_policy(context["policy"].encode()) if "policy" in context else None
    trust = BundleTrust(
        pinned=HubId(unhex(context, "pinned")), bridge=ClientId(unhex(context, "bridge")), policy=policy
    )
    previous = BundleHeader.decode(unhex(context, "previous")) if "previous" in context else None
    verifier = BundleVerifier(parts[0][0], trust, previous=previous)
    for trailer, held in parts:
        index_size = verifier.header.parts[min(trailer.number, len(verifier.header.parts)) - 1].index_size
        part = verifier.begin_part(trailer, held[len(held) - index_size :])
        for start in range(0, len(held) - index_size, 500):
            part.feed(held[start : min(start + 500, len(held) - index_size)])
        part.finish()
    verdict = verifier.finish()
    return {
        "bundle_id": verdict.bundle_id.hex(),
        "from_seq": verdict.header.from_seq,
        "to_seq": verdict.header.to_seq,
        "events": verdict.header.counts.events,
        "chained": verdict.chained,
        "cosigned": len(verdict.cosigned.witnesses) if verdict.cosigned is not None else None,
    }


TWO_HEADER, TWO_CONTENTS = two_parts()
TWO = files(TWO_HEADER, TWO_CONTENTS)
FIRST_EVENTS = entries(1, 2)
FIRST_CONTENT, FIRST_ROW = content(1, FIRST_EVENTS)
FIRST_HEADER = header(1, 2, [FIRST_ROW], FIRST_EVENTS)
FIRST_ID = bundle_id(FIRST_HEADER)
NEXT = one_part(3, 6, previous=FIRST_ID)
FORKED = dataclasses.replace(FIRST_HEADER, root_after=LOG.root(1))
"""A header that claims another history of the first two entries."""
LATER = dataclasses.replace(FIRST_HEADER, to_ts=UnixTime(cast.BORN + 9))
AFTER_FIRST = {"previous": FIRST_HEADER.encode().hex()}
QUIET_CONTENT, QUIET_ROW = content(14, [])
QUIET = header(14, 13, [QUIET_ROW], [])


def _bad(name: str, parts: Sequence[bytes], error: type, match: str, **context: Any) -> Bad:
    wire, needed = case(parts, **context)
    return Bad(name, wire, error, match, needed)


def _good(name: str, parts: Sequence[bytes], **context: Any) -> Good:
    wire, needed = case(parts, **context)
    return Good(name, wire, needed)


def _with_entry(seq: int, replacement: Entry) -> list[bytes]:
    """Return the bundle 1 … 6 with one entry replaced; part table and signature fit."""
    events = [replacement if each.stream_seq == seq else each for each in entries(1, 6)]
    made, row = content(1, events)
    return files(header(1, 6, [row], events), [made])


def _entry(seq: int, msg: bytes | None = None, receipt: bytes | None = None) -> Entry:
    held = LOG.entry(seq)
    return Entry(held.label, held.stream_seq, msg or held.msg_bytes, receipt or held.receipt_bytes)


def _forged_msg() -> bytes:
    """Return message 4 with the signature of another client."""
    msg = LOG.msgs[3]
    return dataclasses.replace(msg, sig=cast.STRANGER.sign(b"not this message")).encode()


def _other_msg() -> bytes:
    return sign_msg(cast.CLIENT, cast.binding(client_seq=4, prev_ack=3), LOG.msgs[4].ciphertext).encode()


def _reordered() -> list[bytes]:
    events = entries(1, 6)
    events[2], events[3] = events[3], events[2]
    made, row = content(1, events)
    return files(header(1, 6, [row], events), [made])


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _index_case(change: Callable[[PartIndex], PartIndex]) -> list[bytes]:
    events = entries(1, 6)
    made, row = content(1, events, index=change)
    return files(header(1, 6, [row], events), [made])


SIX = entries(1, 6)
SIX_CONTENT, SIX_ROW = content(1, SIX)


def _table(**changes: Any) -> list[bytes]:
    return files(header(1, 6, [dataclasses.replace(SIX_ROW, **changes)], SIX), [SIX_CONTENT])


BUNDLE = Object(
    name="bundle",
    judge=judge_bundle,
    good=(
        _good("one_part", one_part(1, 6)),
        _good("two_parts", TWO),
        _good("heartbeat", files(QUIET, [QUIET_CONTENT])),
        _good("chained", NEXT, **AFTER_FIRST),
        _good("range_before_head", one_part(1, 9, upto=11)),
        _good("cosigned", one_part(1, 6), policy=BOTH),
        _good(
            "empty_label",
            files(
                header(
                    1, 0, [content(1, [])[1]], [], upto=2, head=None, from_ts=UnixTime(0), to_ts=UnixTime(0)
                ),
                [content(1, [])[0]],
            ),
        ),
    ),
    bad=(
        _bad("pinned_other", one_part(1, 6), IdentityError, "the pinned hub is 0000", pinned="00" * 32),
        _bad("bridge_other", one_part(1, 6), BundleError, "was made by bridge", bridge="00" * 32),
        _bad(
            "signature_of_another_bridge",
            files(header(1, 6, [SIX_ROW], SIX), [SIX_CONTENT], key=OTHER_BRIDGE),
            SignatureError,
            "bundle signature of the bridge (RESOLUTIONS P6)",
        ),
        _bad(
            "label_other",
            one_part(1, 6, stream="invoices"),
            BundleError,
            "the label is not that of the stream",
        ),
        _bad(
            "epoch_without_epochs", one_part(1, 6, epoch=Epoch(1)), BundleError, "the profile has no epochs"
        ),
        _bad("range_backwards", one_part(1, 6, from_seq=StreamSeq(9)), BundleError, "are no range"),
        _bad(
            "peaks_missing",
            one_part(3, 6, peaks_before=()),
            BundleError,
            "0 peaks are not those of 2 entries",
        ),
        _bad(
            "root_before_other",
            one_part(3, 6, root_before=LOG.root(3)),
            BundleError,
            "root_before is not the root",
        ),
        _bad(
            "times_backwards",
            one_part(1, 6, from_ts=UnixTime(cast.BORN + 7)),
            BundleError,
            "hub_ts goes back",
        ),
        _bad(
            "from_ts_other",
            one_part(1, 6, from_ts=UnixTime(cast.BORN)),
            BundleError,
            "stream_seq 1: from_ts is not",
        ),
        _bad(
            "counts_other",
            one_part(1, 6, counts=dataclasses.replace(header(1, 6, [SIX_ROW], SIX).counts, events=5)),
            BundleError,
            "counts has 5 events",
        ),
        _bad(
            "bytes_other",
            one_part(1, 6, counts=dataclasses.replace(header(1, 6, [SIX_ROW], SIX).counts, event_bytes=5)),
            BundleError,
            "are not those of the parts",
        ),
        _bad("parts_none", one_part(1, 6, parts=()), BundleError, "0 parts; want 1 to 1024"),
        _bad(
            "table_gap",
            _table(first_seq=StreamSeq(2)),
            BundleError,
            "part 1: entries 2 to 6 do not follow entry 0",
        ),
        _bad("table_short", _table(last_seq=StreamSeq(5)), BundleError, "the part table ends at entry 5"),
        _bad("table_size", _table(size=10), BundleError, "part 1: 10 bytes are too few"),
        _bad(
            "table_attachments",
            _table(attachments=1),
            BundleError,
            "the parts have 1 attachments, counts has 0",
        ),
        _bad(
            "table_digest",
            _table(digest=PartDigest(H(b"other"))),
            BundleError,
            "part 1: the content has another hash than the part table",
        ),
        _bad(
            "attachments_omitted",
            files(dataclasses.replace(TWO_HEADER, attachments=AttachmentRule.OMITTED), TWO_CONTENTS),
            BundleError,
            "says that it omits attachments",
        ),
        _bad(
            "head_missing", one_part(1, 6, head=None), BundleError, "no head of the label that covers entry 6"
        ),
        _bad(
            "head_of_another_label",
            one_part(1, 6, head=dataclasses.replace(head_proof(6), head=_other_head(7))),
            BundleError,
            "that of another label",
        ),
        _bad("head_too_early", one_part(1, 6, head=head_proof(2)), BundleError, "head at 2 is before"),
        _bad(
            "root_after_other",
            one_part(1, 6, root_after=LOG.root(5)),
            BundleError,
            "differ in root or hub_ts at 6",
        ),
        _bad(
            "consistency_missing",
            one_part(1, 9, upto=11, head=head_proof(11)),
            BundleError,
            "the consistency proof from 9 to 11 is missing",
        ),
        _bad(
            "consistency_of_another_tree",
            one_part(1, 9, upto=11, root_after=LOG.root(8)),
            ProofError,
            "peaks_from do not fold to the root at 9",
        ),
        _bad(
            "heartbeat_although_more",
            files(
                header(12, 11, [content(12, [])[1]], [], upto=13, head=head_proof(13)), [content(12, [])[0]]
            ),
            BundleError,
            "but the label has 13 entries",
        ),
        _bad(
            "head_at_another_place",
            one_part(1, 6, head=dataclasses.replace(head_proof(6), index=3)),
            ProofError,
            "leaf 3 of 7",
        ),
        _bad(
            "checkpoint_of_another_hub",
            one_part(1, 6, checkpoint=_note(0, 1, key=cast.OTHER_HUB)),
            SignatureError,
            "no key of the hub signed it",
        ),
        _bad(
            "checkpoint_not_a_note",
            one_part(1, 6, checkpoint=b"note"),
            DecodeError,
            "note (C2SP signed-note)",
        ),
        _bad(
            "one_of_two_witnesses",
            one_part(1, 6, checkpoint=_note(0)),
            QuorumError,
            "1 of 2 witnesses",
            policy=BOTH,
        ),
        _bad(
            "previous_missing", one_part(3, 6), BundleError, "a bundle is missing between them", **AFTER_FIRST
        ),
        _bad(
            "previous_leaves_a_gap",
            one_part(7, 11, previous=FIRST_ID),
            BundleError,
            "entries 3 to 6 are in neither bundle",
            **AFTER_FIRST,
        ),
        _bad(
            "previous_overlaps",
            one_part(2, 6, previous=FIRST_ID),
            BundleError,
            "entries 2 to 2 are in both bundles",
            **AFTER_FIRST,
        ),
        _bad(
            "previous_forked",
            one_part(3, 6, previous=bundle_id(FORKED)),
            BundleError,
            "the hub showed two histories",
            previous=FORKED.encode().hex(),
        ),
        _bad(
            "previous_later",
            one_part(3, 6, previous=bundle_id(LATER)),
            BundleError,
            "stream_seq 3: hub_ts goes back",
            previous=LATER.encode().hex(),
        ),
        _bad(
            "previous_of_another_history",
            NEXT,
            BundleError,
            "a bundle is missing between them",
            previous=dataclasses.replace(FIRST_HEADER, root_after=LOG.root(1)).encode().hex(),
        ),
        _bad(
            "previous_of_another_stream",
            NEXT,
            BundleError,
            "is of another stream, 'invoices'",
            previous=dataclasses.replace(FIRST_HEADER, stream="invoices").encode().hex(),
        ),
        _bad("part_missing", TWO[:1], BundleError, "part 2: 1 of 2 parts are missing: 2"),
        _bad("part_doubled", [TWO[0], TWO[0]], BundleError, "part 1: the part was given twice"),
        _bad(
            "parts_swapped",
            files(TWO_HEADER, TWO_CONTENTS[::-1]),
            BundleError,
            "part 1: ",
        ),
        _bad(
            "part_number_beyond",
            files(TWO_HEADER, TWO_CONTENTS, numbers=(1, 3)),
            BundleError,
            "part 3: the bundle has 2 parts",
        ),
        _bad("part_of_another_bundle", [TWO[0], one_part(1, 6)[0]], BundleError, "it belongs to bundle"),
        _bad("part_cut", [TWO[0], TWO[1][:-30]], DecodeError, "it was cut or altered"),
        _bad(
            "magic_flipped",
            [_flipped(one_part(1, 6)[0], 0)],
            BundleError,
            "part 1: the file does not begin like",
        ),
        _bad("event_flipped", [_flipped(one_part(1, 6)[0], 150)], BundleError, "part 1"),
        _bad(
            "msg_forged",
            _with_entry(4, _entry(4, _forged_msg())),
            BundleError,
            "part 1, stream_seq 4: MSG.sig",
        ),
        _bad("msg_other", _with_entry(4, _entry(4, _other_msg())), BundleError, "part 1, stream_seq 4: I2"),
        _bad(
            "receipt_of_another_hub",
            _with_entry(
                4, _entry(4, receipt=cast.receipt(4, LOG.leaf(4), LOG.root(4), key=cast.OTHER_HUB).encode())
            ),
            BundleError,
            "part 1, stream_seq 4: RECEIPT.hub_sig",
        ),
        _bad(
            "receipt_of_another_root",
            _with_entry(4, _entry(4, receipt=cast.receipt(4, LOG.leaf(4), LOG.root(5)).encode())),
            BundleError,
            "part 1, stream_seq 4: I3: mmr_root does not follow",
        ),
        _bad(
            "receipt_back_in_time",
            _with_entry(
                4, _entry(4, receipt=cast.receipt(4, LOG.leaf(4), LOG.root(4), hub_ts=cast.BORN + 2).encode())
            ),
            BundleError,
            "part 1, stream_seq 4: H3",
        ),
        _bad("entries_reordered", _reordered(), BundleError, "part 1, stream_seq 3: §4.8.1"),
        _bad(
            "index_of_other_peaks",
            _index_case(lambda made: dataclasses.replace(made, peaks=(NodeHash(H(b"peak")),))),
            BundleError,
            "part 1: the index does not begin with the header's peaks_before",
        ),
        _bad(
            "index_of_other_offsets",
            _index_case(lambda made: dataclasses.replace(made, offsets=(3,))),
            BundleError,
            "part 1: the index does not describe the records",
        ),
        _bad(
            "attachment_of_another_coid",
            files(
                header(
                    1,
                    6,
                    [
                        (
                            bent := content(
                                1,
                                SIX,
                                attachments=[ATTACHMENT],
                                index=lambda made: dataclasses.replace(
                                    made,
                                    attachments=(
                                        dataclasses.replace(made.attachments[0], coid=Coid(H(b"other"))),
                                    ),
                                ),
                            )
                        )[1]
                    ],
                    SIX,
                    attachments=[ATTACHMENT],
                ),
                [bent[0]],
            ),
            BundleError,
            "part 1: the index does not describe the records",
        ),
    ),
)


# --- the objects inside


def judge_header(wire: bytes, _context: Context) -> Any:
    made = read(BundleHeader, wire)
    return {"bundle_id": bundle_id(made).hex(), "stream": made.stream, "parts": len(made.parts)}


HEADER = Object(
    name="bundle_header",
    judge=judge_header,
    wire=BundleHeader,
    good=(Good("two_parts", TWO_HEADER.encode()), Good("heartbeat", QUIET.encode())),
    bad=(
        Bad("cut", TWO_HEADER.encode()[:-1], DecodeError, "bundle header (RESOLUTIONS P6)"),
        Bad("empty", b"\xa0", DecodeError, "bundle header.kind (RESOLUTIONS P6): missing"),
    ),
)
TRAILER = Object(
    name="part_trailer",
    judge=lambda wire, _context: {"number": read(PartTrailer, wire).number},
    wire=PartTrailer,
    good=(
        Good(
            "second",
            PartTrailer(number=2, header=TWO_HEADER, signature=sign_bundle(BRIDGE, TWO_HEADER)).encode(),
        ),
    ),
    bad=(Bad("empty", b"\xa0", DecodeError, "part trailer.ver (RESOLUTIONS P6): missing"),),
)
INDEX = Object(
    name="part_index",
    judge=decoded(PartIndex),
    wire=PartIndex,
    good=(
        Good(
            "second_part",
            PartIndex(
                peaks=LOG.tree(7).peaks,
                hub_ts=UnixTime(cast.BORN + 7),
                offsets=(14,),
                attachments=(IndexedAttachment(coid=Coid(H(ATTACHMENT)), offset=900, size=31),),
                unopened=2,
            ).encode(),
        ),
    ),
    bad=(Bad("empty", b"\xa0", DecodeError, "part index.ver (RESOLUTIONS P6): missing"),),
)
OBJECTS = (BUNDLE, HEADER, TRAILER, INDEX)
