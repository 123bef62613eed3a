"""SQL functions: verify, open, decode and fold by ``spark.sql`` alone.

    veen_leaf_hash(msg)                the leaf that a MSG becomes (§2)
    veen_verify_msg(msg)               whether a MSG holds alone: form, bounds, ct_hash, signature (§4.1)
    veen_verify_receipt(receipt, key)  whether the hub signed it (§4.3); ``key`` is a hub_pk, or the bytes of
                                       hub-identity.cbor: then the key active at hub_ts counts (§8.4)
    veen_schema_name(schema)           the name of a schema id, if an overlay here declares it
    veen_open(msg)                     the plaintext, as a struct like the columns of ``open_messages``
    veen_decode(schema, body)          a body as JSON; null if it is not what its schema promises (§4.7)
    veen_fold_kv_map(stream_seq, leaf_hash, veen_open(msg))
                                       an aggregate for each overlay: its state as JSON, with its hash

What does not decode is false or null, never an error: one bad row does not end a query. An argument of
another type does: hex in place of bytes would only ever be null. An aggregate gets a group's rows in one
task; ``fold`` does not, and is the way for a label that one task cannot hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from veen_core import hub_identity
from veen_core.errors import VeenError, VerificationError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubPk
from veen_core.msg import Msg, verify_msg
from veen_core.receipt import Receipt, verify_receipt
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.live.opening import UNOPENED
from veen_overlays.schema.record import Undecodable, decode_record
from veen_spark.errors import SparkSetupError
from veen_spark.functions.open import OPENED_FIELDS, Opener, opened_values
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.functions.schema_names import SHAPES, schema_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Columnar = Callable[..., pa.Array]
Kind = Callable[[pa.DataType], bool]
_OPENED: Final = pa.struct(OPENED_FIELDS)
IDENTITIES: Final = 256
"""Hub identities that a worker keeps, verified."""


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def leaf_hash(wire: bytes) -> bytes:
    return bytes(Msg.decode(wire).leaf_hash)


def msg_verifies(wire: bytes) -> bool:
    verify_msg(wire)
    return True


@lru_cache(maxsize=IDENTITIES)
def _identity(data: bytes) -> HubIdentity:
    identity = HubIdentity.decode(data)
    hub_identity.verify_identity(identity)
    return identity


def receipt_verifies(wire: bytes, key: bytes) -> bool:
    receipt = Receipt.decode(wire)
    if len(key) == HubPk.SIZE:
        verify_receipt(receipt, HubPk(key))
    else:
        hub_identity.verify_receipt(_identity(key), receipt)
    return True


def decoded(schema: bytes, body: bytes) -> str | None:
    """JSON as everywhere: names for keys, lowercase hex for byte strings (B17)."""
    shapes = SHAPES.get(schema)
    record = None if shapes is None else decode_record(shapes, body)
    return None if record is None or isinstance(record, Undecodable) else record.to_json()


def _require(usage: str, columns: Sequence[pa.Array], *kinds: Kind) -> None:
    """Raise unless these are the columns that a function takes; a null literal is any."""
    types = [column.type for column in columns]
    fit = [pa.types.is_null(type_) or kind(type_) for type_, kind in zip(types, kinds, strict=False)]
    if len(types) != len(kinds) or not all(fit):
        found = ", ".join(map(str, types))
        raise SparkSetupError(f"{usage}: found {found}; bytes are binary, unhex('…') makes them of hex")


def _row_by_row(usage: str, work: Callable[..., Any], type_: pa.DataType, otherwise: Any = None) -> Columnar:
    """A function of values as one of columns: null for a null, ``otherwise`` for what it refuses."""
    kinds = [_is_binary] * (usage.count(",") + 1)

    def columnar(*columns: pa.Array) -> pa.Array:
        _require(usage, columns, *kinds)

        def one(row: tuple[Any, ...]) -> Any:
            if None in row:
                return None
            with suppress(VeenError):
                return work(*row)
            return otherwise

        return pa.array([one(row) for row in zip(*(c.to_pylist() for c in columns), strict=True)], type_)

    return columnar


def _opening(keys: ReaderKeys | None) -> Columnar:
    def opening(*columns: pa.Array) -> pa.Array:
        _require("veen_open(msg)", columns, _is_binary)
        (messages,) = columns
        opener = Opener(() if keys is None else keys.get())
        names = _OPENED.names
        rows = []
        for wire in messages.to_pylist():
            found = opener.open(b"" if wire is None else wire[:0], None if wire is None else "msg", wire)
            rows.append(dict(zip(names, opened_values(found), strict=True)))
        return pa.array(rows, _OPENED)

    return opening


def _folding(name: str) -> Callable[[pa.Array, pa.Array, pa.Array], str]:
    usage = f"{aggregate_name(name)}(stream_seq, leaf_hash, veen_open(msg))"

    def folding(seqs: pa.Array, leaves: pa.Array, opened: pa.Array) -> str:
        _require(usage, (seqs, leaves, opened), pa.types.is_integer, _is_binary, pa.types.is_struct)
        if seqs.null_count or leaves.null_count:
            raise VerificationError("veen_fold: a row is no log entry: it has no stream_seq or no leaf_hash")
        rows = zip(seqs.to_pylist(), leaves.to_pylist(), opened.to_pylist(), strict=True)
        return folded_json(OVERLAYS[name], sorted(rows, key=lambda row: row[0]))

    return folding


def folded_json(overlay: Overlay[Any], rows: list[tuple[int, bytes, dict[str, Any] | None]]) -> str:
    """The state after these entries, which must be consecutive; those of one label, as SQL groups them."""
    seqs = [seq for seq, *_ in rows]
    if seqs and seqs != list(range(seqs[0], seqs[0] + len(seqs))):
        raise VerificationError(
            "veen_fold: entries are missing or there twice; group by label, and leave none of its entries out"
        )
    summary = overlay.fold(_message(*row) for row in rows)
    counts = {"events": summary.events, "foreign": summary.foreign, "undecodable": summary.undecodable}
    prefix = {"from_seq": seqs[0], "upto_seq": seqs[-1]} if seqs else {}
    shown = {"state": overlay.view_json(summary), "state_hash": overlay.state_hash(summary).hex()}
    return json.dumps({**prefix, **counts, **shown}, ensure_ascii=False)


def _message(seq: int, leaf: bytes, opened: dict[str, Any] | None) -> Message:
    if opened is None or not opened["opened"]:
        return Message(seq, leaf, UNOPENED, b"")
    return Message(seq, leaf, opened["schema"], opened["body"], opened["parent_id"])


def aggregate_name(overlay: str) -> str:
    return f"veen_fold_{overlay.replace('.', '_')}"


def register(spark: SparkSession, keys: ReaderKeys | None = None) -> None:
    """Make the functions known to a session; ``veen_open`` opens with these keys, and nothing without."""
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415 - slow to import

    yes_or_no, text, binary = pa.bool_(), pa.string(), pa.binary()
    plain: dict[str, tuple[Callable[..., Any], pa.DataType, Any]] = {
        "veen_leaf_hash(msg)": (leaf_hash, binary, None),
        "veen_verify_msg(msg)": (msg_verifies, yes_or_no, False),
        "veen_verify_receipt(receipt, key)": (receipt_verifies, yes_or_no, False),
        "veen_schema_name(schema)": (schema_name, text, None),
        "veen_decode(schema, body)": (decoded, text, None),
    }
    functions = {
        usage.partition("(")[0]: (_row_by_row(usage, *how), _declared(how[1])) for usage, how in plain.items()
    }
    functions["veen_open"] = (_opening(keys), _declared(_OPENED))
    for name, (work, type_) in functions.items():
        spark.udf.register(name, arrow_udf(work, type_))  # type: ignore[call-overload]  # by type hints
    for overlay in OVERLAYS:
        aggregate = arrow_udf(_folding(overlay), "string")  # type: ignore[call-overload]  # likewise
        spark.udf.register(aggregate_name(overlay), aggregate)


def _declared(type_: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415 - slow to import

    return from_arrow_type(type_).simpleString()
