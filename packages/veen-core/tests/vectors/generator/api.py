"""Vectors of the API's envelopes, in CBOR and JSON (§10.4, §10.6, B11, B17)."""

from __future__ import annotations

import json
from typing import Any

import cbor2

from veen_core import api
from veen_core.checkpoint import Checkpoint, sign_checkpoint
from veen_core.consistency import prove_consistency
from veen_core.errors import AdmissionError, ApiError, DecodeError
from veen_core.ids import Epoch, MmrRoot, StreamSeq
from veen_core.proof import prove_inclusion
from veen_core.rejection import CAP_RATE, CT_HASH, Code, Stage
from veen_core.wire import Wire

from . import cast
from .case import Bad, Context, Good, Judge, Object, read
from .crooked import encode
from .entries import CONTROL, TOKEN, TOKEN_LEAF

LOG = cast.log()
MSG, RECEIPT = LOG.msgs[0], LOG.receipts[0]
PROOF = prove_inclusion(LOG.lookup, StreamSeq(2), 3)
CONSISTENCY = prove_consistency(LOG.lookup, StreamSeq(3), StreamSeq(7))
CHECKPOINT = sign_checkpoint(
    cast.HUB,
    Checkpoint(
        label_prev=cast.LABEL,
        label_curr=cast.LABEL,
        upto_seq=StreamSeq(3),
        mmr_root=LOG.root(3),
        epoch=Epoch(0),
    ),
    cast.WITNESSES,
)
AT = {"label": cast.LABEL}
BY = {"server_version": "0.0.1"}
ITEMS = tuple(
    api.StreamItem(stream_seq=StreamSeq(seq), msg=LOG.msgs[seq - 1], receipt=LOG.receipts[seq - 1])
    for seq in (1, 2)
)
CONTROL_ITEM = api.ControlItem(
    stream_seq=StreamSeq(1),
    msg=TOKEN,
    receipt=cast.receipt(1, TOKEN_LEAF, MmrRoot(TOKEN_LEAF), label=CONTROL),
)
BARE_ITEM = api.StreamItem(stream_seq=StreamSeq(1), msg=MSG)
SLOW_DOWN = AdmissionError(CAP_RATE, "rate limit exceeded", retry_after=1)
FULL_DETAIL = api.ErrorDetail(
    stage=Stage.STRUCTURAL,
    detail_enum="FIELD_SIZE",
    field="label",
    expected="bstr32",
    actual="bstr31",
    max_allowed=32,
    label=cast.LABEL,
    stream_seq=StreamSeq(1),
)


def judgeenvelope(cls: type[Wire]) -> Judge:
    """Both forms say the same; value.json is the JSON form, spread over lines."""

    def judge(wire: bytes, _context: Context) -> Any:
        envelope = read(cls, wire)
        value = json.loads(envelope.to_json())
        if cls.from_json(json.dumps(value, indent=1)) != envelope:
            raise AssertionError("the JSON form says something else")
        return value

    return judge


def envelope(name: str, cls: type[Wire], *bad: Bad, **cases: Wire) -> Object:
    """The first case has every field: structural faults are derived from it."""
    good = tuple(Good(case, value.encode()) for case, value in cases.items())
    return Object(name=name, judge=judgeenvelope(cls), wire=cls, good=good, bad=bad, json=True)


def _error(**changes: Any) -> bytes:
    item = {1: 1, 2: "E.SEQ", 3: "no"}
    return encode(item | {int(key[1:]): value for key, value in changes.items()})


def _text(value: Wire, name: str, changed: Any) -> str:
    return json.dumps(json.loads(value.to_json()) | {name: changed}, separators=(",", ":"))


SUBMIT = api.SubmitRequest(msg=MSG)
OBJECTS = (
    envelope(
        "submit_request",
        api.SubmitRequest,
        Bad(
            "msg_of_9",
            encode({1: 1, 2: cbor2.loads(MSG.encode())[:9]}),
            DecodeError,
            "MSG (core §4.1): want array of 10",
        ),
        Bad(
            "msg_as_bytes",
            encode({1: 1, 2: MSG.encode()}),
            DecodeError,
            "MSG (core §4.1): want array, found bstr",
        ),
        Bad(
            "json_msg_as_object",
            _text(SUBMIT, "msg", {}),
            DecodeError,
            "MSG (core §4.1): want array, found map of 0",
        ),
        one=SUBMIT,
    ),
    envelope(
        "submit_response",
        api.SubmitResponse,
        full=api.SubmitResponse(receipt=RECEIPT, **BY),
        bare=api.SubmitResponse(receipt=RECEIPT),
    ),
    envelope(
        "stream_request",
        api.StreamRequest,
        Bad(
            "with_receipts_1",
            encode({1: 1, 2: cast.LABEL, 3: 1, 7: 1}),
            DecodeError,
            "want bool, found int 1",
        ),
        full=api.StreamRequest(
            **AT,
            from_seq=StreamSeq(1),
            to_seq=StreamSeq(100),
            max_items=1_000,
            cursor=StreamSeq(42),
            with_receipts=True,
            with_mmr_proof=False,
        ),
        bare=api.StreamRequest(**AT, from_seq=StreamSeq(1)),
    ),
    envelope("stream_item", api.StreamItem, full=ITEMS[0], bare=BARE_ITEM),
    envelope(
        "stream_response",
        api.StreamResponse,
        full=api.StreamResponse(
            **AT,
            from_seq=StreamSeq(1),
            to_seq=StreamSeq(2),
            items=ITEMS,
            next_cursor=StreamSeq(3),
            mmr_proof=PROOF,
            **BY,
        ),
        bare=api.StreamResponse(**AT, from_seq=StreamSeq(1), items=(BARE_ITEM,)),
        empty=api.StreamResponse(**AT, from_seq=StreamSeq(14), items=()),
    ),
    envelope(
        "control_item",
        api.ControlItem,
        Bad(
            "msg_where_a_token_stands",
            encode({1: 1, 2: cbor2.loads(MSG.encode())}),
            DecodeError,
            "cap_token (core §6): want map, found array",
        ),
        full=CONTROL_ITEM,
        bare=api.ControlItem(stream_seq=StreamSeq(1), msg=TOKEN),
    ),
    envelope(
        "control_response",
        api.ControlResponse,
        full=api.ControlResponse(
            label=CONTROL,
            from_seq=StreamSeq(1),
            to_seq=StreamSeq(1),
            items=(CONTROL_ITEM,),
            next_cursor=StreamSeq(2),
            mmr_proof=PROOF,
            **BY,
        ),
        bare=api.ControlResponse(label=CONTROL, from_seq=StreamSeq(1), items=()),
    ),
    envelope("receipt_request", api.ReceiptRequest, one=api.ReceiptRequest(**AT, stream_seq=StreamSeq(1))),
    envelope(
        "receipt_response",
        api.ReceiptResponse,
        full=api.ReceiptResponse(receipt=RECEIPT, **BY),
        bare=api.ReceiptResponse(receipt=RECEIPT),
    ),
    envelope(
        "proof_request",
        api.ProofRequest,
        full=api.ProofRequest(**AT, stream_seq=StreamSeq(2), tree_size=StreamSeq(3)),
        bare=api.ProofRequest(**AT, stream_seq=StreamSeq(2)),
    ),
    envelope(
        "proof_response",
        api.ProofResponse,
        full=api.ProofResponse(mmr_proof=PROOF, **BY),
        bare=api.ProofResponse(mmr_proof=PROOF),
    ),
    envelope(
        "checkpoint_request", api.CheckpointRequest, one=api.CheckpointRequest(**AT, upto_seq=StreamSeq(3))
    ),
    envelope(
        "checkpoint_response",
        api.CheckpointResponse,
        full=api.CheckpointResponse(checkpoint=CHECKPOINT, **BY),
        bare=api.CheckpointResponse(checkpoint=CHECKPOINT),
    ),
    envelope(
        "consistency_request",
        api.ConsistencyRequest,
        one=api.ConsistencyRequest(**AT, from_seq=StreamSeq(3), to_seq=StreamSeq(7)),
    ),
    envelope(
        "consistency_response",
        api.ConsistencyResponse,
        full=api.ConsistencyResponse(mmr_consistency=CONSISTENCY, **BY),
        bare=api.ConsistencyResponse(mmr_consistency=CONSISTENCY),
    ),
    envelope(
        "error",
        api.ErrorEnvelope,
        Bad("code_unknown", _error(k2="E.DUP"), DecodeError, "error.code (core §10.6): want one of Code"),
        Bad(
            "stage_unknown",
            _error(k4={"stage": "later"}),
            DecodeError,
            "error.detail.stage (core §10.6): want one of Stage",
        ),
        Bad(
            "detail_unknown_key",
            _error(k4={"why": "x"}),
            DecodeError,
            "error.detail (core §10.6): unknown key",
        ),
        Bad(
            "detail_misordered", _error(k4={"field": "a", "stage": "auth"}), DecodeError, "keys out of order"
        ),
        Bad(
            "detail_integer_key",
            _error(k4={1: "auth"}),
            DecodeError,
            "error.detail (core §10.6): unknown key",
        ),
        full=api.ErrorEnvelope(
            code=Code.SIZE, message="label is 31 bytes", detail=FULL_DETAIL, retry_after=1, request_id="r-1"
        ),
        admission=api.envelope_of(AdmissionError(CT_HASH, "H(ciphertext) is not ct_hash")),
        rate=api.envelope_of(SLOW_DOWN, "r-2"),
        other=api.envelope_of(ApiError(Code.NOT_FOUND, "no such label")),
    ),
)
