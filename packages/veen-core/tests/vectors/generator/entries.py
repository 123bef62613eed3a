"""Vectors of log entries (§4.8.1, H5) and of evidence that a hub signed two histories."""

from __future__ import annotations

import dataclasses
from typing import Any

from veen_core import stream
from veen_core.cap import Rate, verify_token
from veen_core.entry import (
    FLAG_AUTHORIZE,
    FRAME_SIZE,
    Entry,
    authorize_leaf,
    entry_hash,
    unframe,
)
from veen_core.equivocation import Equivocation, Statement, evidence_of, verify_evidence
from veen_core.errors import DecodeError, EvidenceError, InvariantError, SignatureError
from veen_core.hub_identity import HubIdentity, new_identity
from veen_core.ids import ClientSeq, Epoch, HubPk, Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import SigningKey
from veen_core.log_rules import PROFILE, LogTerms, verify_alone
from veen_core.log_verifier import LogVerifier
from veen_core.receipt import verify_receipt

from . import cast
from .case import Bad, Context, Good, Object, read, readable, unhex

LOG = cast.log()


# --- entry


IDENTITY = new_identity(cast.HUB, UnixTime(0))


def judge_entry(wire: bytes, context: Context) -> Any:
    """Frame and pair; then a MSG against the log before it, or a token by itself; then the receipt."""
    entry = unframe(wire)
    step = verify_alone(entry)
    if entry.is_authorize:
        verify_token(entry.token)
    else:
        peaks = [bytes.fromhex(peak) for peak in context["peaks"]]
        if entry.msg.profile_id != unhex(context, "profile_id"):
            raise PROFILE.broken("the profile is not the hub's", entry.stream_seq)
        log = LogVerifier(LogTerms(label=entry.label, identity=IDENTITY), size=context["size"], peaks=peaks)
        log.writers.put(entry.msg.client_id, ClientSeq(context["last_client_seq"]))
        log.advance(step)
    verify_receipt(entry.receipt, HubPk(unhex(context, "hub_pk")))
    return {
        "flags": entry.flags,
        "label": entry.label.hex(),
        "stream_seq": entry.stream_seq,
        "entry_hash": entry.entry_hash.hex(),
        "receipt": readable(entry.receipt),
    }


def _after(size: int, **more: Any) -> dict[str, Any]:
    """The label as it stands after ``size`` entries."""
    tree = LOG.tree(size)
    return {
        "hub_pk": cast.HUB.public.hex(),
        "size": size,
        "peaks": [peak.hex() for peak in tree.peaks],
        "last_client_seq": size,
        "profile_id": cast.BULK.profile_id.hex(),
    } | more


CONTROL = stream.label(cast.ROUTING_KEY, stream.stream_id("veen.control"), Epoch(0))
TOKEN = cast.token()
TOKEN_LEAF = authorize_leaf(TOKEN.auth_ref, TOKEN.encode())
SIXTH = LOG.entry(6)
WIRE = SIXTH.encode()


def _authorize(leaf: LeafHash = TOKEN_LEAF, content: bytes = TOKEN.encode()) -> bytes:
    receipt = cast.receipt(1, leaf, MmrRoot(leaf), label=CONTROL)
    return Entry(CONTROL, StreamSeq(1), content, receipt.encode(), FLAG_AUTHORIZE).encode()


def _put(at: int, value: bytes) -> bytes:
    """The sixth entry with some bytes of its header replaced."""
    return WIRE[:at] + value + WIRE[at + len(value) :]


def _framed(**changes: Any) -> bytes:
    """The sixth entry with a part replaced and a header that fits it."""
    return dataclasses.replace(SIXTH, **changes).encode()


def _ahead() -> bytes:
    """The sixth entry whose MSG acknowledges itself; the leaf does not cover prev_ack."""
    return _framed(msg_bytes=dataclasses.replace(SIXTH.msg, prev_ack=StreamSeq(6)).encode())


def _receipted(**changes: Any) -> bytes:
    receipt = cast.receipt(6, LOG.leaf(6), LOG.root(6), **changes)
    return _framed(receipt_bytes=receipt.encode())


def _headless() -> bytes:
    """A MSG alone: no RECEIPT after it."""
    length, digest = len(SIXTH.msg_bytes), entry_hash(SIXTH.msg_bytes, b"")
    return WIRE[:42] + length.to_bytes(4, "big") + bytes(4) + digest + SIXTH.msg_bytes


MSG_LEN = len(SIXTH.msg_bytes)
NINTH_MSG = LOG.msgs[8].encode()
LONG_RECEIPT = b"\x87\x18\x01" + SIXTH.receipt_bytes[2:]
ENTRY = Object(
    name="entry",
    judge=judge_entry,
    good=(
        Good("first", LOG.entry(1).encode(), _after(0)),
        Good("sixth", WIRE, _after(5)),
        Good("authorize", _authorize(), {"hub_pk": cast.HUB.public.hex()}),
    ),
    bad=tuple(
        Bad(name, wire, error, match, context)
        for name, wire, error, match, context in (
            ("empty", b"", DecodeError, "want 82 bytes of frame header, found 0", None),
            (
                "header_cut",
                WIRE[: FRAME_SIZE - 1],
                DecodeError,
                "want 82 bytes of frame header, found 81",
                None,
            ),
            (
                "entry_ver_2",
                _put(0, b"\x02"),
                DecodeError,
                "entry.entry_ver (core §4.8.1): want entry_ver 1",
                None,
            ),
            (
                "entry_ver_0",
                _put(0, b"\x00"),
                DecodeError,
                "entry.entry_ver (core §4.8.1): want entry_ver 1",
                None,
            ),
            (
                "flags_bit_1",
                _put(1, b"\x02"),
                DecodeError,
                "flags (core §4.8.1): unused bits are set, found 0x02",
                None,
            ),
            (
                "flags_bit_7",
                _put(1, b"\x81"),
                DecodeError,
                "flags (core §4.8.1): unused bits are set, found 0x81",
                None,
            ),
            (
                "label_other",
                _put(2, bytes(32)),
                DecodeError,
                "the RECEIPT and the header differ in label",
                None,
            ),
            (
                "stream_seq_other",
                _put(34, bytes(8)),
                DecodeError,
                "the RECEIPT and the header differ in label",
                None,
            ),
            ("msg_len_one_more", _put(42, (MSG_LEN + 1).to_bytes(4, "big")), DecodeError, "announce", None),
            ("receipt_len_one_less", _put(46, (170).to_bytes(4, "big")), DecodeError, "announce", None),
            (
                "entry_hash_other",
                _put(50, bytes(32)),
                DecodeError,
                "entry.entry_hash (core §4.8.1): does not",
                None,
            ),
            (
                "msg_flipped",
                _put(200, b"\x00\x00"),
                DecodeError,
                "entry_hash (core §4.8.1): does not match",
                None,
            ),
            ("body_cut", WIRE[:-1], DecodeError, "bytes, found", None),
            ("trailing_byte", WIRE + b"\x00", DecodeError, "bytes, found", None),
            ("receipt_none", _headless(), DecodeError, "is 0, but every entry has a RECEIPT", None),
            (
                "receipt_not_canonical",
                _framed(receipt_bytes=LONG_RECEIPT),
                DecodeError,
                "not canonical",
                None,
            ),
            (
                "receipt_of_another_msg",
                _framed(msg_bytes=NINTH_MSG),
                InvariantError,
                "I2: leaf_hash",
                _after(5),
            ),
            (
                "msg_not_canonical",
                _framed(msg_bytes=b"\x8a"),
                InvariantError,
                "I10: MSG (core §4.1): not",
                _after(5),
            ),
            (
                "stream_seq_skipped",
                WIRE,
                InvariantError,
                "I3: the entry does not follow entry 7",
                _after(7, last_client_seq=5),
            ),
            ("client_seq_repeated", WIRE, InvariantError, "I8: client_seq 6", _after(5, last_client_seq=6)),
            ("client_seq_skipped", WIRE, InvariantError, "I9: client_seq 6", _after(5, last_client_seq=4)),
            ("profile_unknown", WIRE, InvariantError, "I4: the profile", _after(5, profile_id="00" * 32)),
            ("prev_ack_ahead", _ahead(), InvariantError, "I6: prev_ack 6 is beyond", _after(5)),
            (
                "authorize_hides_a_msg",
                _put(1, b"\x01"),
                InvariantError,
                "I10: cap_token (core §6): want map",
                _after(5),
            ),
            (
                "authorize_of_another_token",
                _authorize(content=cast.token(Rate(per_sec=1, burst=1)).encode()),
                InvariantError,
                "H5: leaf_hash in the RECEIPT is not the leaf hash of the entry's token",
                _after(0),
            ),
            (
                "msg_hides_an_authorize",
                _authorize().replace(b"\x01\x01", b"\x01\x00", 1),
                InvariantError,
                "I10: MSG (core §4.1): want array, found map of 5",
                _after(0),
            ),
            ("hub_sig_of_another", _receipted(key=cast.OTHER_HUB), SignatureError, "hub_sig", _after(5)),
        )
    ),
)


# --- equivocation


def judge_equivocation(wire: bytes, context: Context) -> Any:
    evidence = read(Equivocation, wire)
    identity = HubIdentity.decode(unhex(context, "identity")) if "identity" in context else None
    verify_evidence(evidence, identity)
    return readable(evidence)


def _said(seq: int, leaf: LeafHash, key: SigningKey = cast.HUB, **how: Any) -> Statement:
    receipt = cast.receipt(seq, leaf, LOG.root(seq), key=key, **how)
    return Statement(hub_pk=HubPk(key.public), receipt=receipt)


def _pair(a: Statement, b: Statement) -> bytes:
    """In order, whether or not they prove anything."""
    first, second = sorted((a, b), key=Statement.encode)
    return Equivocation(first=first, second=second).encode()


def _unchained() -> HubIdentity:
    """An identity whose second key the first one never endorsed."""
    first, second = cast.rotated_identity().hub_keys
    forged = dataclasses.replace(second, endorsement=cast.STRANGER.sign(bytes(32)))
    return dataclasses.replace(cast.rotated_identity(), hub_keys=(first, forged))


ONE, OTHER = _said(3, LOG.leaf(3)), _said(3, LOG.leaf(4))
BY_NEXT = _said(3, LOG.leaf(4), cast.NEXT_HUB, hub_ts=cast.ROTATED)
TOO_EARLY = _said(3, LOG.leaf(4), cast.NEXT_HUB, hub_ts=cast.ROTATED - 1)
TOO_LATE = _said(3, LOG.leaf(4), hub_ts=cast.ROTATED + cast.WINDOW_SEC)
FORGED = dataclasses.replace(OTHER, receipt=dataclasses.replace(OTHER.receipt, hub_sig=ONE.receipt.hub_sig))
HUB = {"identity": cast.rotated_identity().encode().hex()}
UNCHAINED = {"identity": _unchained().encode().hex()}
FOREIGN = _said(3, LOG.leaf(4), cast.OTHER_HUB)
EVIDENCE = evidence_of(ONE, OTHER)
EQUIVOCATION = Object(
    name="equivocation",
    judge=judge_equivocation,
    wire=Equivocation,
    good=(
        Good("same_key", EVIDENCE.encode()),
        Good("same_key_of_a_known_hub", EVIDENCE.encode(), HUB),
        Good("across_a_rotation", _pair(ONE, BY_NEXT), HUB),
    ),
    bad=tuple(
        Bad(name, wire, EvidenceError, match, context)
        for name, wire, match, context in (
            (
                "statements_swapped",
                Equivocation(first=EVIDENCE.second, second=EVIDENCE.first).encode(),
                "not in ascending order",
                None,
            ),
            ("statement_twice", Equivocation(first=ONE, second=ONE).encode(), "not in ascending order", None),
            (
                "other_stream_seq",
                _pair(ONE, _said(4, LOG.leaf(4))),
                "are for different labels or stream_seqs",
                None,
            ),
            (
                "other_label",
                _pair(ONE, _said(3, LOG.leaf(4), label=Label(bytes(32)))),
                "for different labels",
                None,
            ),
            ("other_hub_ts_only", _pair(ONE, _said(3, LOG.leaf(3), hub_ts=1)), "the receipts agree", None),
            ("forged", _pair(ONE, FORGED), "RECEIPT.hub_sig at stream_seq 3", None),
            ("two_keys_without_identity", _pair(ONE, BY_NEXT), "the statements name two keys", None),
            ("foreign_key", _pair(ONE, FOREIGN), "was not an active key of hub", HUB),
            ("key_before_its_time", _pair(ONE, TOO_EARLY), "was not an active key of hub", HUB),
            ("key_after_its_end", _pair(ONE, TOO_LATE), "was not an active key of hub", HUB),
            (
                "identity_not_chained",
                EVIDENCE.encode(),
                "hub_key.endorsement (core §8.4) does not verify",
                UNCHAINED,
            ),
        )
    ),
)
OBJECTS = (ENTRY, EQUIVOCATION)
