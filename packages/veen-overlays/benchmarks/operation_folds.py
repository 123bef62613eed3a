"""The figure ``overlays.fold_ops``: the slowest fold of the operation profiles (spec-3).

The log of each overlay has random records of its declarations, with few names, so that they act on each
other. Two thirds of a log are records of the kind that an overlay's users send all day, such as payments,
which the domain lets count; the last third is drawn from all kinds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from veen_core.hashing import H, u64be
from veen_core.kinds import AnyValue, Bytes, Fixed, Int, Kind, ListOf, OneOf, Scalar, Uint
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.operations import OVERLAYS
from veen_overlays.operations.agreement import AgreementConfirmation
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.payment import Domain, PaidOperation
from veen_overlays.operations.publication import DataPublication
from veen_overlays.operations.recovery_records import RecoveryApproval
from veen_overlays.operations.results import Claim, Result
from veen_overlays.schema.record import Record
from veen_overlays.wallet.records import Open

NOON = 1_700_006_400
NAMES = 16
"""Different identifiers of a kind."""
MAX_ATTEMPTS = 1_000
AUTHORITY = bytes(32)
FREQUENT = {PaidOperation, Claim, Result, AgreementConfirmation, DataPublication, RecoveryApproval}
"""The most frequent records of the overlays."""


def overlays() -> tuple[Overlay[Any], ...]:
    """The overlays that the figure covers: all of ``veen_overlays.operations``."""
    return OVERLAYS


def messages(overlay: Overlay[Any], count: int) -> Iterator[Message]:
    """The log of an overlay, the same every time."""
    rng = random.Random(overlay.name)  # noqa: S311 - the same log every time
    drawn = [shape for shape in overlay.schemas if shape is not Open]  # its id depends on its other fields
    frequent = [shape for shape in drawn if shape in FREQUENT]
    shapes = drawn * len(frequent) + frequent * (2 * len(drawn))
    for n in range(1, count + 1):
        record = _first() if n == 1 and Domain in overlay.schemas else record_of(rng, rng.choice(shapes))
        signer = bytes([rng.randrange(NAMES)]) * 32
        yield Message(n, H(u64be(n)), bytes(record.SCHEMA), record.encode(), None, signer, NOON + n)


def _first() -> Record:
    return Domain(authorities=(IdentityId(AUTHORITY),), negative_balances=True, grants_required=False)


def record_of(rng: random.Random, shape: type[Record]) -> Record:
    """A random record that obeys its rules."""
    for _ in range(MAX_ATTEMPTS):
        fields = [f for f in shape.codec.fields if not f.optional or rng.random() < 0.25]
        record = shape(**{f.name: _value(rng, f.kind) for f in fields})
        if record.broken_rule() is None:
            return record
    raise AssertionError(f"drawn values never obey the rules of {shape.NAME}")


def _value(rng: random.Random, kind: Kind) -> Any:
    match kind:
        case Uint():
            return rng.choice((rng.randrange(4), rng.randrange(500), NOON + rng.randrange(10**6)))
        case Int():
            return rng.randrange(-500, 500)
        case Bytes():
            return rng.randbytes(16)
        case Fixed(type=type_, size=size):
            return type_(bytes([rng.randrange(NAMES)]) * size)
        case Scalar(type=type_):
            return rng.choice(("EUR", "translate")) if type_ is str else rng.random() < 0.5
        case OneOf(allowed=allowed):
            return rng.choice(allowed)
        case ListOf(kind=inner, least=least):
            return tuple(_value(rng, inner) for _ in range(rng.randint(max(1, least), 3)))
        case AnyValue():
            return {"text": "hello", "words": rng.randrange(100)}
    return None
