"""Envelopes of the data plane: keys, names, strictness (§10.4-§10.6, B11, H16, B17)."""

import dataclasses
import json
import random
from collections.abc import Callable, Iterator

import pytest

from veen_core import DecodeError, Label, api, cbor, mint, rejection
from veen_core.api import (
    CheckpointRequest,
    CheckpointResponse,
    ConsistencyRequest,
    ConsistencyResponse,
    ControlItem,
    ControlResponse,
    ErrorDetail,
    ErrorEnvelope,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamItem,
    StreamRequest,
    StreamResponse,
    SubmitRequest,
    SubmitResponse,
    envelope_of,
    split_submits,
    unwrap_submit,
    wrap_submit,
)
from veen_core.errors import AdmissionError, ApiError, EncodeError
from veen_core.ids import StreamId, StreamSeq
from veen_core.kinds import WordOf
from veen_core.rejection import Code, Stage
from veen_core.wire import Wire

from .simulator import Hub

HUB = Hub()
HUB.write("bob", b"1", b"2", b"3")
LABEL = HUB.label
ENTRY = HUB.entries[2]
MSG, RECEIPT = ENTRY.msg, ENTRY.receipt
PROOF, CONSISTENCY, CHECKPOINT = HUB.proof(3), HUB.consistency(1, 3), HUB.checkpoint(3)
ITEM = StreamItem(stream_seq=StreamSeq(3), msg=MSG, receipt=RECEIPT)
TOKEN = mint(HUB.key, MSG.client_id, [StreamId(bytes(32))], 3_600)
CONTROL_ITEM = ControlItem(stream_seq=StreamSeq(1), msg=TOKEN, receipt=RECEIPT)

FULL: dict[str, tuple[Wire, list[str]]] = {
    "submit request": (SubmitRequest(msg=MSG), ["ver", "msg"]),
    "submit response": (
        SubmitResponse(receipt=RECEIPT, server_version="0.0.1"),
        ["ver", "receipt", "server_version"],
    ),
    "stream request": (
        StreamRequest(
            label=LABEL,
            from_seq=StreamSeq(0),
            to_seq=StreamSeq(100),
            max_items=1_000,
            cursor=StreamSeq(42),
            with_receipts=True,
            with_mmr_proof=False,
        ),
        ["ver", "label", "from_seq", "to_seq", "max_items", "cursor", "with_receipts", "with_mmr_proof"],
    ),
    "stream item": (ITEM, ["stream_seq", "msg", "receipt"]),
    "stream response": (
        StreamResponse(
            label=LABEL,
            from_seq=StreamSeq(3),
            to_seq=StreamSeq(3),
            items=(ITEM,),
            next_cursor=StreamSeq(4),
            mmr_proof=PROOF,
            server_version="0.0.1",
        ),
        ["ver", "label", "from_seq", "to_seq", "items", "next_cursor", "mmr_proof", "server_version"],
    ),
    "control item": (CONTROL_ITEM, ["stream_seq", "msg", "receipt"]),
    "control response": (
        ControlResponse(
            label=LABEL,
            from_seq=StreamSeq(1),
            to_seq=StreamSeq(1),
            items=(CONTROL_ITEM,),
            next_cursor=StreamSeq(2),
            mmr_proof=PROOF,
            server_version="0.0.1",
        ),
        ["ver", "label", "from_seq", "to_seq", "items", "next_cursor", "mmr_proof", "server_version"],
    ),
    "receipt request": (ReceiptRequest(label=LABEL, stream_seq=StreamSeq(3)), ["ver", "label", "stream_seq"]),
    "receipt response": (
        ReceiptResponse(receipt=RECEIPT, server_version="0.0.1"),
        ["ver", "receipt", "server_version"],
    ),
    "proof request": (
        ProofRequest(label=LABEL, stream_seq=StreamSeq(1), tree_size=StreamSeq(3)),
        ["ver", "label", "stream_seq", "tree_size"],
    ),
    "proof response": (
        ProofResponse(mmr_proof=PROOF, server_version="0.0.1"),
        ["ver", "mmr_proof", "server_version"],
    ),
    "checkpoint request": (
        CheckpointRequest(label=LABEL, upto_seq=StreamSeq(3)),
        ["ver", "label", "upto_seq"],
    ),
    "checkpoint response": (
        CheckpointResponse(checkpoint=CHECKPOINT, server_version="0.0.1"),
        ["ver", "checkpoint", "server_version"],
    ),
    "consistency request": (
        ConsistencyRequest(label=LABEL, from_seq=StreamSeq(1), to_seq=StreamSeq(3)),
        ["ver", "label", "from_seq", "to_seq"],
    ),
    "consistency response": (
        ConsistencyResponse(mmr_consistency=CONSISTENCY, server_version="0.0.1"),
        ["ver", "mmr_consistency", "server_version"],
    ),
    "error": (
        ErrorEnvelope(
            code="E.RATE",
            message="too fast",
            detail=ErrorDetail(stage="auth", detail_enum="CAP_RATE"),
            retry_after=1,
            request_id="r-1",
        ),
        ["ver", "code", "message", "detail", "retry_after", "request_id"],
    ),
}
EACH = pytest.mark.parametrize("name", FULL)


@EACH
def test_keys_are_1_to_n_in_order_and_json_uses_the_names(name: str) -> None:
    envelope, names = FULL[name]
    assert envelope.codec.name == name
    assert list(cbor.decode(envelope.encode())) == list(range(1, len(names) + 1))
    assert list(json.loads(envelope.to_json())) == names


@EACH
def test_cbor_and_json_decode_to_the_same_value(name: str) -> None:
    envelope, _ = FULL[name]
    assert type(envelope).decode(envelope.encode()) == envelope
    assert type(envelope).from_json(envelope.to_json()) == envelope


@EACH
def test_unknown_keys_are_refused_in_both_forms(name: str) -> None:
    envelope, names = FULL[name]
    items = cbor.decode(envelope.encode())
    with pytest.raises(DecodeError, match=f"{name} [§(].*unknown key"):
        type(envelope).decode(cbor.encode({**items, len(names) + 1: 0}))
    with pytest.raises(DecodeError, match=f"{name} [§(].*unknown key 'extra'"):
        type(envelope).from_json(json.dumps({**json.loads(envelope.to_json()), "extra": 0}))


def _fields(envelope: Wire, *, optional: bool) -> list[tuple[int, str]]:
    return [(f.key, f.name) for f in envelope.codec.fields if f.optional is optional]


@EACH
def test_null_is_refused_everywhere(name: str) -> None:
    envelope, names = FULL[name]
    items, text = cbor.decode(envelope.encode()), json.loads(envelope.to_json())
    for key, field in enumerate(names, start=1):
        with pytest.raises(DecodeError, match=f"{name}.{field} [§(]"):
            type(envelope).decode(cbor.encode({**items, key: None}))
        with pytest.raises(DecodeError, match=f"{name}.{field} [§(]"):
            type(envelope).from_json(json.dumps({**text, field: None}))


@EACH
def test_optional_fields_may_be_omitted_and_required_fields_may_not(name: str) -> None:
    envelope, _ = FULL[name]
    bare = dataclasses.replace(envelope, **{field: None for _, field in _fields(envelope, optional=True)})
    items = cbor.decode(bare.encode())
    assert list(items) == [key for key, _ in _fields(envelope, optional=False)]
    assert type(envelope).decode(bare.encode()) == bare
    assert type(envelope).from_json(bare.to_json()) == bare
    for key, field in _fields(envelope, optional=False):
        with pytest.raises(DecodeError, match=f"{name}.{field} [§(].*missing"):
            type(envelope).decode(cbor.encode({k: v for k, v in items.items() if k != key}))


def test_the_same_fields_are_optional_as_in_the_specification() -> None:
    optional = {
        name: [f for _, f in _fields(envelope, optional=True)] for name, (envelope, _) in FULL.items()
    }
    assert optional == {
        "submit request": [],
        "submit response": ["server_version"],
        "stream request": ["to_seq", "max_items", "cursor", "with_receipts", "with_mmr_proof"],
        "stream item": ["receipt"],
        "stream response": ["to_seq", "next_cursor", "mmr_proof", "server_version"],
        "control item": ["receipt"],
        "control response": ["to_seq", "next_cursor", "mmr_proof", "server_version"],
        "receipt request": [],
        "receipt response": ["server_version"],
        "proof request": ["tree_size"],  # H16
        "proof response": ["server_version"],
        "checkpoint request": [],
        "checkpoint response": ["server_version"],
        "consistency request": [],
        "consistency response": ["server_version"],
        "error": ["detail", "retry_after", "request_id"],
    }


def test_a_request_of_another_version_is_refused() -> None:
    items = cbor.decode(FULL["receipt request"][0].encode())
    with pytest.raises(DecodeError, match=r"receipt request\.ver .core §10\.4\.3.: want 1, found int 2"):
        ReceiptRequest.decode(cbor.encode({**items, 1: 2}))


def test_the_golden_bytes_of_a_small_request() -> None:
    request = ReceiptRequest(label=Label(bytes(32)), stream_seq=StreamSeq(7))
    assert request.encode().hex() == "a30101025820" + "00" * 32 + "0307"
    assert request.to_json() == '{"ver":1,"label":"' + "00" * 32 + '","stream_seq":7}'


# --- stream (§10.5)


def test_the_cursor_takes_precedence_over_from_seq() -> None:
    assert StreamRequest(label=LABEL, from_seq=StreamSeq(5)).start == 5
    assert StreamRequest(label=LABEL, from_seq=StreamSeq(5), cursor=StreamSeq(9)).start == 9
    assert StreamRequest(label=LABEL, from_seq=StreamSeq(5), cursor=StreamSeq(0)).start == 0


def test_an_empty_page_is_a_page() -> None:
    page = StreamResponse(label=LABEL, from_seq=StreamSeq(9), items=())
    assert StreamResponse.decode(page.encode()) == page


# --- submit (§10.4.1)


def test_a_submit_request_is_four_bytes_around_the_message() -> None:
    wire = MSG.encode()
    assert wrap_submit(wire) == SubmitRequest(msg=MSG).encode()
    assert unwrap_submit(wrap_submit(wire)) == wire


@pytest.mark.parametrize(
    ("envelope", "match"),
    [
        pytest.param(b"", "not CBOR", id="nothing"),
        pytest.param(cbor.encode([1, 2]), "submit request .core §10.4.1.: want map", id="an array"),
        pytest.param(cbor.encode({1: 2, 2: [0] * 10}), "submit request.", id="another version"),
        pytest.param(cbor.encode({1: 1}), "msg .core §10.4.1.: missing", id="no message"),
        pytest.param(cbor.encode({2: [], 1: 1}), "out of order", id="keys out of order"),
        pytest.param(b"\xa2\x18\x01\x01\x02\x80", "not canonical", id="a long integer"),
        pytest.param(cbor.encode({1: 1, 2: [], 3: 0}), "unknown key", id="an unknown key"),
    ],
)
def test_an_envelope_of_another_shape_is_refused_with_the_reason(envelope: bytes, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        unwrap_submit(envelope)


def split(items: Callable[[bytes], Iterator[bytes]], body: bytes) -> list[bytes] | str:
    try:
        return list(items(body))
    except DecodeError as exc:
        return str(exc)


@pytest.mark.parametrize("seed", range(40))
def test_a_sequence_of_submits_is_split_like_any_cbor_sequence(seed: int) -> None:
    """Whole, cut off, with damage, and with other items in it."""
    draw = random.Random(seed)
    wires = [wrap_submit(entry.msg_bytes) for entry in HUB.entries]
    whole = b"".join(
        draw.choices([*wires, b"\x01", b"\xa2\x01\x01\x02\x80", b"\xf6"], [9, 9, 9, 1, 1, 1], k=8)
    )
    damaged = bytearray(whole)
    damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
    for body in (whole, whole[: draw.randrange(len(whole))], bytes(damaged), whole + b"\xff"):
        assert split(split_submits, body) == split(cbor.split_sequence, body)


def test_unwrapping_does_not_check_the_message() -> None:
    assert unwrap_submit(wrap_submit(b"anything")) == b"anything"


# --- errors (§10.6, §8.2)


@pytest.mark.parametrize("row", rejection.TABLE, ids=lambda row: row.detail)
def test_an_admission_error_travels_with_stage_and_detail(row: rejection.Rejection) -> None:
    envelope = envelope_of(AdmissionError(row, "because"), request_id="r-7")
    assert cbor.decode(envelope.encode()) == {
        1: 1,
        2: row.code.value,
        3: "because",
        4: {"stage": row.stage.value, "detail_enum": row.detail},
        6: "r-7",
    }
    assert ErrorEnvelope.decode(envelope.encode()) == envelope


@pytest.mark.parametrize("code", list(Code), ids=lambda code: code.value)
def test_an_api_error_travels_without_a_stage(code: Code) -> None:
    envelope = envelope_of(ApiError(code, "no"))
    assert cbor.decode(envelope.encode()) == {1: 1, 2: code.value, 3: "no"}


def test_retry_after_is_in_the_envelope() -> None:
    assert envelope_of(AdmissionError(rejection.CAP_RATE, "no", retry_after=3)).retry_after == 3
    assert envelope_of(ApiError(Code.UNAVAILABLE, "no", retry_after=9)).retry_after == 9


def test_the_envelope_accepts_exactly_the_declared_codes_and_stages() -> None:
    kinds = {f.name: f.kind for cls in (ErrorEnvelope, ErrorDetail) for f in cls.codec.fields}
    assert (kinds["code"], kinds["stage"]) == (WordOf(Code), WordOf(Stage))
    assert [stage.value for stage in Stage] == ["prefilter", "structural", "auth", "commit"]


def test_a_decoded_code_or_stage_is_an_enum_member() -> None:
    envelope = envelope_of(AdmissionError(rejection.CAP_RATE, "no"))
    for again in (ErrorEnvelope.decode(envelope.encode()), ErrorEnvelope.from_json(envelope.to_json())):
        assert again.detail is not None
        assert (type(again.code), type(again.detail.stage)) == (Code, Stage)
        assert (again.code, again.detail.stage) == (rejection.CAP_RATE.code, rejection.CAP_RATE.stage)


@pytest.mark.parametrize("word", ["E.DUP", "e.seq", "SEQ", "", b"E.SEQ", 1, None])
def test_an_unknown_error_code_is_refused(word: object) -> None:
    with pytest.raises(DecodeError, match=r"error\.code .core §10\.6.: want one of Code"):
        ErrorEnvelope.decode(cbor.encode({1: 1, 2: word, 3: "no"}))
    with pytest.raises(EncodeError, match="want one of Code"):
        ErrorEnvelope(code=word, message="no").encode()  # type: ignore[arg-type]


def test_detail_has_the_stable_keys_of_the_spec() -> None:
    keys = [f.key for f in ErrorDetail.codec.fields]
    assert keys == [
        "stage",
        "detail_enum",
        "field",
        "expected",
        "actual",
        "max_allowed",
        "label",
        "stream_seq",
    ]
    detail = ErrorDetail(field="label", expected="bstr32", actual="null", max_allowed=1, label=LABEL)
    assert ErrorDetail.decode(detail.encode()) == detail


def test_every_envelope_of_the_module_is_tested_here() -> None:
    declared = {
        v.codec.name for v in vars(api).values() if isinstance(v, type) and v.__module__ == api.__name__
    }
    assert declared == {*FULL, "error.detail"}
