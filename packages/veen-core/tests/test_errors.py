"""One root, families by who can act, and no secrets (errors.py)."""

import inspect
import pickle

import pytest

from veen_core import VeenError, errors, rejection
from veen_core.errors import (
    AdmissionError,
    ApiError,
    DecodeError,
    DivergenceError,
    Fault,
    InvariantError,
    VerificationError,
)

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_has_one_root_and_a_line_in_the_drawn_tree(cls: type[Exception]) -> None:
    assert issubclass(cls, VeenError)
    assert cls.__name__ in (errors.__doc__ or "")
    assert cls.__doc__


def test_faults_are_in_the_order_of_the_structural_rows() -> None:
    order = [
        rejection.TABLE.index(row)
        for row in (rejection.CBOR_INVALID, rejection.FIELD_SIZE, rejection.VERSION)
    ]
    assert order == sorted(order)
    assert Fault.CBOR < Fault.SIZE < Fault.VERSION


def test_a_decode_error_says_where_and_what() -> None:
    error = DecodeError("want bstr32, found null", where="RECEIPT.label §4.3")
    assert str(error) == "RECEIPT.label §4.3: want bstr32, found null"
    assert (error.found, error.fault) == ("want bstr32, found null", Fault.CBOR)
    assert str(DecodeError("bare")) == "bare"


def test_a_decode_error_is_seen_from_the_object_around_it() -> None:
    inner = DecodeError("x", fault=Fault.SIZE)
    outer = inner.within("[3]").within("A.b §1")
    assert str(outer) == "A.b §1: [3]: x"
    assert outer.fault is Fault.SIZE


def test_an_invariant_error_names_the_invariant() -> None:
    assert InvariantError("I3", "no").invariant == "I3"
    assert isinstance(InvariantError("I3", "no"), VerificationError)


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


def test_a_plain_error_survives_pickling() -> None:
    assert str(pickle.loads(pickle.dumps(errors.StateError("no")))) == "no"
