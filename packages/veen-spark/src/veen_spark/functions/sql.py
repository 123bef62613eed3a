"""The SQL functions: verify, open, decode and fold in ``spark.sql``.

    veen_leaf_hash(msg)                the leaf hash of a MSG (core §2)
    veen_verify_msg(msg)               whether a MSG is valid: form, bounds, ct_hash, signature (core §4.1)
    veen_verify_receipt(receipt, key)  whether the hub signed a RECEIPT (core §4.3); ``key`` is a hub_pk, or
                                       hub-identity.cbor, whose key active at hub_ts is used (core §8.4)
    veen_schema_name(schema)           the name of a schema id that an installed overlay declares
    veen_open(msg)                     the plaintext, as a struct with the columns of ``open_messages``
    veen_decode(schema, body)          a body as JSON; null if it does not match its schema (core §4.7)
    veen_fold_kv_map(stream_seq, leaf_hash, veen_open(msg))
                                       an aggregate per overlay: the state of a label as JSON, with its hash

A value that does not decode gives false or null, so that one bad row does not fail a query. An argument of
the wrong type is an error, because hex instead of bytes would always give null.

An aggregate follows the rules of ``fold``: it refuses a label that does not begin with entry 1, has gaps, or
has pruned entries. It processes a group in one task; for a label that is too large for one task, use
``fold``.
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
from veen_spark.functions.open import NO_MSG, OPENED_FIELDS, Opener, opened_values
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.functions.schema_names import SHAPES, schema_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

Columnar = Callable[..., pa.Array]
Kind = Callable[[pa.DataType], bool]
_OPENED: Final = pa.struct(OPENED_FIELDS)
MAX_CACHED_IDENTITIES: Final = 256
"""Verified hub identities that a worker process keeps."""


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def leaf_hash(wire: bytes) -> bytes:
    """Return the leaf hash of an encoded MSG."""
    return bytes(Msg.decode(wire).leaf_hash)


def msg_verifies(wire: bytes) -> bool:
    """Return True for a valid MSG; raise ``VeenError`` for any other."""
    verify_msg(wire)
    return True


@lru_cache(maxsize=MAX_CACHED_IDENTITIES)
def _identity(data: bytes) -> HubIdentity:
    identity = HubIdentity.decode(data)
    hub_identity.verify_identity(identity)
    return identity


def receipt_verifies(wire: bytes, key: bytes) -> bool:
    """Return True if the hub signed the RECEIPT; raise ``VeenError`` if not."""
    receipt = Receipt.decode(wire)
    if len(key) == HubPk.SIZE:
        verify_receipt(receipt, HubPk(key))
    else:
        hub_identity.verify_receipt(_identity(key), receipt)
    return True


def record_json(schema: bytes, body: bytes) -> str | None:
    """Return a record as JSON: names as keys, byte strings in lowercase hex (RESOLUTIONS B17)."""
    shapes = SHAPES.get(schema)
    record = None if shapes is None else decode_record(shapes, body)
    return None if record is None or isinstance(record, Undecodable) else record.to_json()


def _require(usage: str, columns: Sequence[pa.Array], *kinds: Kind) -> None:
    """Raise unless the columns have the types that the function takes; a null literal has any type."""
    types = [column.type for column in columns]
    fit = [pa.types.is_null(type_) or kind(type_) for type_, kind in zip(types, kinds, strict=False)]
    if len(types) != len(kinds) or not all(fit):
        found = ", ".join(map(str, types))
        raise SparkSetupError(f"{usage}: found {found}", action="convert hex to binary with unhex('…')")


def _row_by_row(usage: str, work: Callable[..., Any], type_: pa.DataType, refused: Any = None) -> Columnar:
    """Apply ``work`` to each row: a null gives null, and a ``VeenError`` gives ``refused``."""
    kinds = [_is_binary] * (usage.count(",") + 1)

    def columnar(*columns: pa.Array) -> pa.Array:
        _require(usage, columns, *kinds)

        def one(row: tuple[Any, ...]) -> Any:
            if None in row:
                return None
            with suppress(VeenError):
                return work(*row)
            return refused

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
            raise VerificationError(
                "a row has no stream_seq or no leaf_hash, so it is not a log entry",
                action="exclude rows that describe damage (mode=quarantine)",
            )
        rows = zip(seqs.to_pylist(), leaves.to_pylist(), opened.to_pylist(), strict=True)
        return folded_json(OVERLAYS[name], sorted(rows, key=lambda row: row[0]))

    return folding


def folded_json(overlay: Overlay[Any], rows: list[tuple[int, bytes, dict[str, Any] | None]]) -> str:
    """Return the state of one label as JSON; ``rows`` are all of its entries in order."""
    seqs = [seq for seq, *_ in rows]
    _require_prefix(overlay, seqs)
    summary = overlay.fold(_message(overlay, *row) for row in rows)
    counts = {"events": summary.events, "foreign": summary.foreign, "undecodable": summary.undecodable}
    prefix = {"from_seq": seqs[0], "upto_seq": seqs[-1]} if seqs else {}
    shown = {"state": overlay.view_json(summary), "state_hash": overlay.state_hash(summary).hex()}
    return json.dumps({**prefix, **counts, **shown}, ensure_ascii=False)


def _require_prefix(overlay: Overlay[Any], seqs: list[int]) -> None:
    """Raise unless the entries are 1, 2, … without a gap: a state is computed from a prefix of the log."""
    for expected, seq in enumerate(seqs, 1):
        if seq == expected:
            continue
        if seq < expected:
            found = f"entry {seq} occurs twice"
        else:
            found = f"entries {expected} to {seq - 1} are missing"
        raise VerificationError(
            f"{aggregate_name(overlay.name)}: {found}",
            action="group by label, and select every entry of the label once, from entry 1 on",
        )


def _message(overlay: Overlay[Any], seq: int, leaf: bytes, opened: dict[str, Any] | None) -> Message:
    """Return the message of an entry; raise for a pruned entry, whose message does not exist any more."""
    if opened is None or opened.get("why_not") == NO_MSG:
        raise VerificationError(
            f"{aggregate_name(overlay.name)}: entry {seq} has no message; retention has removed it",
            action="fold a copy that was made before, or use fold(…, allow_pruned=True)",
        )
    if not opened["opened"]:
        return Message(seq, leaf, UNOPENED, b"")
    return Message(seq, leaf, opened["schema"], opened["body"], opened["parent_id"])


def aggregate_name(overlay: str) -> str:
    """Return the SQL name of an overlay's aggregate."""
    return f"veen_fold_{overlay.replace('.', '_')}"


def register(spark: SparkSession, keys: ReaderKeys | None = None) -> None:
    """Register the functions with a session; without keys ``veen_open`` opens nothing."""
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415 - slow to import

    boolean, text, binary = pa.bool_(), pa.string(), pa.binary()
    plain: dict[str, tuple[Callable[..., Any], pa.DataType, Any]] = {
        "veen_leaf_hash(msg)": (leaf_hash, binary, None),
        "veen_verify_msg(msg)": (msg_verifies, boolean, False),
        "veen_verify_receipt(receipt, key)": (receipt_verifies, boolean, False),
        "veen_schema_name(schema)": (schema_name, text, None),
        "veen_decode(schema, body)": (record_json, text, None),
    }
    functions = {
        usage.partition("(")[0]: (_row_by_row(usage, *how), _declared(how[1])) for usage, how in plain.items()
    }
    functions["veen_open"] = (_opening(keys), _declared(_OPENED))
    for name, (work, type_) in functions.items():
        spark.udf.register(name, arrow_udf(work, type_))  # type: ignore[call-overload]  # by type hints
    for overlay in (name for name, each in OVERLAYS.items() if not (each.reads_signer or each.reads_time)):
        # ``veen_open`` returns neither signer nor time: an aggregate over it would give a different state.
        aggregate = arrow_udf(_folding(overlay), _declared(text))  # type: ignore[call-overload]  # as above
        spark.udf.register(aggregate_name(overlay), aggregate)


def _declared(type_: pa.DataType) -> DataType:
    """Return the type as a Spark object: a type given as text loads the JVM's SQL parser (0.5 s)."""
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415 - slow to import

    return from_arrow_type(type_)
