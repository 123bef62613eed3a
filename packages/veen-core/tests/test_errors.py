"""The errors: one root, one class per kind of failure, and no secrets in them."""

import copy
import inspect
import pickle
from collections.abc import Callable

import pytest

from veen_core import VeenError, errors, keys, rejection
from veen_core.errors import (
    AdmissionError,
    ApiError,
    DecodeError,
    DecodeFault,
    DivergenceError,
    InvariantError,
    SignatureError,
    VerificationError,
)
from veen_core.ids import VerifyKey

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_derives_from_the_root_and_is_in_the_drawn_tree(cls: type[Exception]) -> None:
    assert issubclass(cls, VeenError)
    assert cls.__name__ in (errors.__doc__ or "")
    assert cls.__doc__


def test_faults_are_in_the_order_of_the_structural_rows() -> None:
    order = [
        rejection.TABLE.index(row)
        for row in (rejection.CBOR_INVALID, rejection.FIELD_SIZE, rejection.VERSION)
    ]
    assert order == sorted(order)
    assert DecodeFault.CBOR < DecodeFault.SIZE < DecodeFault.VERSION


def test_a_decode_error_names_the_field_and_the_finding() -> None:
    error = DecodeError("want bstr32, found null", where="RECEIPT.label (core §4.3)")
    assert str(error) == "RECEIPT.label (core §4.3): want bstr32, found null"
    assert (error.found, error.fault) == ("want bstr32, found null", DecodeFault.CBOR)
    assert str(DecodeError("bare")) == "bare"


def test_a_decode_error_names_the_enclosing_object() -> None:
    inner = DecodeError("x", fault=DecodeFault.SIZE)
    outer = inner.within("[3]").within("A.b (core §1)")
    assert str(outer) == "A.b (core §1): [3]: x"
    assert outer.fault is DecodeFault.SIZE


def test_an_invariant_error_names_the_invariant() -> None:
    assert InvariantError("I3", "no").invariant == "I3"
    assert isinstance(InvariantError("I3", "no"), VerificationError)


def test_errors_of_rules_and_signatures_have_finding_and_clause_apart() -> None:
    broken = InvariantError("I3", "no", clause="core §7", seq=4)
    assert (str(broken), broken.found, broken.clause) == ("I3: no (core §7, stream_seq 4)", "no", "core §7")
    refused = keys.refused(VerifyKey(bytes(32)), "MSG.sig", "core §4.1")
    key = bytes(32).hex()
    assert refused.message == f"MSG.sig (core §4.1) does not verify under key {key}"
    assert (refused.found, refused.clause) == (f"MSG.sig does not verify under key {key}", "core §4.1")
    plain = SignatureError("no")
    assert (plain.found, plain.clause) == ("no", None)


def test_a_divergence_carries_both_sides() -> None:
    error = DivergenceError("no", held=b"a", shown=b"b")
    assert (error.held, error.shown) == (b"a", b"b")
    assert (DivergenceError("no").held, DivergenceError("no").shown) == (b"", b"")


def test_a_refusal_carries_its_row_or_code() -> None:
    admission = AdmissionError(rejection.CAP_RATE, "too fast", retry_after=1)
    assert (admission.rejection, admission.retry_after, str(admission)) == (rejection.CAP_RATE, 1, "too fast")
    api = ApiError(rejection.Code.NOT_FOUND, "no such label")
    assert (api.code, api.retry_after) == (rejection.Code.NOT_FOUND, None)


def test_errors_pass_through_a_context_manager_unharmed() -> None:
    # Frozen dataclasses would not: a traceback cannot be set on them.
    with pytest.raises(DivergenceError) as caught, pytest.MonkeyPatch.context():
        raise DivergenceError("no")
    assert caught.value.__traceback__ is not None


MADE: dict[type[Exception], Exception] = {
    DecodeError: DecodeError("x", fault=DecodeFault.SIZE, where="A.b (core §1)").within("[3]"),
    InvariantError: InvariantError("I3", "no", clause="core §7", seq=4),
    SignatureError: SignatureError("sig (core §4) no", found="sig no", clause="core §4", action="stop"),
    DivergenceError: DivergenceError("no", held=b"a", shown=b"b"),
    AdmissionError: AdmissionError(rejection.CAP_RATE, "too fast", retry_after=1),
    ApiError: ApiError(rejection.Code.NOT_FOUND, "no such label", retry_after=2),
}
WAYS: dict[str, Callable[[Exception], Exception]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickle_and_copy(cls: type[Exception], way: str) -> None:
    error = MADE[cls] if cls in MADE else cls("no")
    again = WAYS[way](error)
    assert type(again) is cls
    assert again is not error
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_every_error_with_its_own_constructor_is_tested_here() -> None:
    assert {cls for cls in CLASSES if "__init__" in vars(cls)} - {VeenError} == set(MADE)


def test_an_error_with_a_note_keeps_it() -> None:
    error = InvariantError("I3", "no")
    error.add_note("at chunk 4")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["at chunk 4"]
