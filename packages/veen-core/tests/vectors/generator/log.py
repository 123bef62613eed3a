"""Vectors of RECEIPT and CHECKPOINT."""

from __future__ import annotations

import dataclasses
from typing import Any

import cbor2

from veen_core import checkpoint as checkpoints
from veen_core import stream
from veen_core.checkpoint import Checkpoint, LabelOrigin, check_transition, sign_checkpoint, verify_witnesses
from veen_core.errors import (
    CheckpointError,
    DecodeError,
    SignatureError,
)
from veen_core.ids import (
    Epoch,
    HubPk,
    MmrRoot,
    RoutingKey,
    Signature,
    StreamId,
    StreamSeq,
    VerifyKey,
)
from veen_core.keys import SigningKey
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt, verify_receipt

from . import cast
from .case import Bad, Context, Good, Object, read, readable, unhex
from .crooked import encode

LOG = cast.log()
HUB_PK = {"hub_pk": cast.HUB.public.hex()}
ZERO_ROOT = MmrRoot(bytes(32))


def _key(key: SigningKey) -> HubPk:
    return HubPk(key.public)


# --- RECEIPT


def judge_receipt(wire: bytes, context: Context) -> Any:
    receipt = read(Receipt, wire)
    verify_receipt(receipt, HubPk(unhex(context, "hub_pk")))
    return readable(receipt)


FIRST = LOG.receipts[0]
RECEIPT = Object(
    name="receipt",
    judge=judge_receipt,
    wire=Receipt,
    good=(
        Good("first", FIRST.encode(), HUB_PK),
        Good("thirteenth", LOG.receipts[12].encode(), HUB_PK),
        Good("of_a_far_stream_seq", cast.receipt(2**40, LOG.leaf(1), LOG.root(1)).encode(), HUB_PK),
    ),
    bad=(
        Bad(
            "mmr_root_null",
            cbor2.dumps([1, bytes(32), 1, bytes(32), None, 1, bytes(64)]),
            DecodeError,
            "found null",
        ),
        Bad(
            "other_hub",
            FIRST.encode(),
            SignatureError,
            "RECEIPT.hub_sig",
            {"hub_pk": cast.OTHER_HUB.public.hex()},
        ),
        *(
            Bad(
                f"{name}_changed",
                dataclasses.replace(FIRST, **{name: value}).encode(),
                SignatureError,
                why,
                HUB_PK,
            )
            for name, value, why in (
                ("stream_seq", 2, "RECEIPT.hub_sig at stream_seq 2 (core §4.3) does not verify"),
                ("leaf_hash", LOG.leaf(2), "RECEIPT.hub_sig at stream_seq 1 (core §4.3) does not verify"),
                ("mmr_root", ZERO_ROOT, "RECEIPT.hub_sig at stream_seq"),
                ("hub_ts", FIRST.hub_ts + 1, "RECEIPT.hub_sig at stream_seq"),
                ("hub_sig", Signature(bytes(64)), "RECEIPT.hub_sig at stream_seq"),
            )
        ),
    ),
)


# --- CHECKPOINT: signatures, witnesses, then §4.4.1 against the rebuilt prefix


def judge_checkpoint(wire: bytes, context: Context) -> Any:
    checkpoint = read(Checkpoint, wire)
    checkpoints.verify_signature(checkpoint, HubPk(unhex(context, "hub_pk")))
    verify_witnesses(checkpoint, [VerifyKey(bytes.fromhex(key)) for key in context["witnesses"]])
    prefix = Mmr()
    for leaf in context["leaves"]:
        prefix.append(bytes.fromhex(leaf))
    given = context.get("origin")
    origin = given and LabelOrigin(
        routing_key=RoutingKey(unhex(given, "routing_key")),
        stream_id=StreamId(unhex(given, "stream_id")),
        epoch_sec=given["epoch_sec"],
        max_skew_sec=given["max_skew_sec"],
    )
    last = StreamSeq(context.get("last_upto_seq", 0))
    check_transition(checkpoint, prefix, last_upto_seq=last, origin=origin, hub_ts=context.get("hub_ts"))
    return readable(checkpoint) | {"signing_digest": checkpoints.signing_digest(checkpoint).hex()}


MINUTE = Epoch(cast.BORN // 60)
ORIGIN = {
    "routing_key": cast.ROUTING_KEY.hex(),
    "stream_id": cast.STREAM.hex(),
    "epoch_sec": 60,
    "max_skew_sec": 60,
}


def _label_at(epoch: int) -> bytes:
    return stream.label(cast.ROUTING_KEY, cast.STREAM, Epoch(epoch))


def _checkpoint(size: int = 7, *, witnesses: tuple[SigningKey, ...] = (), **changes: Any) -> bytes:
    fields = {
        "label_prev": cast.LABEL,
        "label_curr": cast.LABEL,
        "upto_seq": StreamSeq(size),
        "mmr_root": LOG.root(size),
        "epoch": Epoch(0),
    }
    return sign_checkpoint(cast.HUB, Checkpoint(**(fields | changes)), witnesses).encode()


def _rotating(**changes: Any) -> bytes:
    labels = {"label_prev": _label_at(MINUTE - 1), "label_curr": _label_at(MINUTE), "epoch": MINUTE}
    return _checkpoint(**(labels | changes))


def _prefix(size: int = 7, **more: Any) -> dict[str, Any]:
    leaves = [LOG.leaf(seq).hex() for seq in range(1, size + 1)]
    return HUB_PK | {"witnesses": [], "leaves": leaves} | more


OTHER_LABEL = stream.label(cast.ROUTING_KEY, cast.OTHER_STREAM, Epoch(0))
WITNESSED = [key.public.hex() for key in cast.WITNESSES]
EIGHT = _checkpoint(witnesses=cast.WITNESSES)
NULL_WITNESSES = encode([*cbor2.loads(_checkpoint()), None])
NO_WITNESSES = encode([*cbor2.loads(_checkpoint()), []])
CHECKPOINT = Object(
    name="checkpoint",
    judge=judge_checkpoint,
    wire=Checkpoint,
    bend="eight_items",
    good=(
        Good("seven_items", _checkpoint(), _prefix()),
        Good("eight_items", EIGHT, _prefix(witnesses=WITNESSED)),
        Good("witnesses_in_another_order", EIGHT, _prefix(witnesses=WITNESSED[::-1])),
        Good("rotation", _rotating(), _prefix(origin=ORIGIN, hub_ts=cast.BORN)),
        Good(
            "no_rotation", _rotating(label_prev=_label_at(MINUTE)), _prefix(origin=ORIGIN, hub_ts=cast.BORN)
        ),
        Good("same_upto_seq_again", _checkpoint(), _prefix(last_upto_seq=7)),
    ),
    bad=tuple(
        Bad(name, wire, error, match, context)
        for name, wire, error, match, context in (
            (
                "witness_sigs_null",
                NULL_WITNESSES,
                DecodeError,
                "witness_sigs (core §4.4): want array, found null",
                None,
            ),
            (
                "witness_sigs_empty",
                NO_WITNESSES,
                DecodeError,
                "witness_sigs (core §4.4): want array of at least 1, found array of 0",
                None,
            ),
            (
                "other_hub",
                _checkpoint(),
                SignatureError,
                "hub_sig",
                _prefix(hub_pk=cast.OTHER_HUB.public.hex()),
            ),
            ("witness_unknown", EIGHT, SignatureError, "witness_sigs[1]", _prefix(witnesses=WITNESSED[:1])),
            (
                "witness_missing",
                _checkpoint(),
                SignatureError,
                "the signature of witness",
                _prefix(witnesses=WITNESSED),
            ),
            (
                "witness_twice",
                _checkpoint(witnesses=(cast.WITNESSES[0], cast.WITNESSES[0])),
                SignatureError,
                "witness_sigs[1] (core §4.4): verifies under no known witness key",
                _prefix(witnesses=WITNESSED),
            ),
            (
                "upto_seq_zero",
                _checkpoint(upto_seq=StreamSeq(0)),
                CheckpointError,
                "covers no entry",
                _prefix(0),
            ),
            ("upto_seq_back", _checkpoint(), CheckpointError, "checkpoint at 8", _prefix(last_upto_seq=8)),
            ("upto_seq_not_aligned", _checkpoint(), CheckpointError, "the log of 6 entries", _prefix(6)),
            (
                "mmr_root_other",
                _checkpoint(mmr_root=LOG.root(8)),
                CheckpointError,
                "is not the root",
                _prefix(),
            ),
            ("epoch_not_of_hub_ts", _rotating(), CheckpointError, "H9", _prefix(origin=ORIGIN, hub_ts=0)),
            (
                "label_of_another_stream",
                _checkpoint(label_prev=OTHER_LABEL, label_curr=OTHER_LABEL),
                CheckpointError,
                "label_curr is not",
                _prefix(origin=ORIGIN),
            ),
            (
                "epoch_without_epochs",
                _checkpoint(epoch=Epoch(5)),
                CheckpointError,
                "the profile has no epochs",
                _prefix(origin=ORIGIN | {"epoch_sec": 0}),
            ),
            (
                "label_prev_two_epochs_back",
                _rotating(label_prev=_label_at(MINUTE - 2)),
                CheckpointError,
                "label_prev is not the stream's label in the previous epoch",
                _prefix(origin=ORIGIN),
            ),
            (
                "label_curr_outside_the_skew",
                _rotating(label_curr=_label_at(MINUTE - 2)),
                CheckpointError,
                "label_curr is not the stream's label in epoch",
                _prefix(origin=ORIGIN),
            ),
        )
    ),
)
OBJECTS = (RECEIPT, CHECKPOINT)
