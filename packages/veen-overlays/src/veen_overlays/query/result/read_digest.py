"""Read a ResultDigest from its canonical JSON, strictly (query-api §5.2, RESOLUTIONS P13)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from veen_core.errors import DecodeError
from veen_core.hashing import U64_MAX
from veen_core.ids import HubId, Label, MmrRoot
from veen_overlays.query import canonical_json
from veen_overlays.query.errors import QueryError
from veen_overlays.query.request.evidence_policy import read_evidence
from veen_overlays.query.request.timestamp import parse_timestamp
from veen_overlays.query.result.coverage import SourceCoverage
from veen_overlays.query.result.digest import VERSION, ResultDigest

T = TypeVar("T")
MAX_DIGEST_BYTES: Final = 1_048_576
"""Most bytes of a digest: it travels in one MSG (query-api §5.5, core §14)."""
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_COUNTS: Final = ("epoch", "from_seq", "to_seq", "scanned", "opened", "unopened", "pruned", "matched")
_SOURCE_KEYS: Final = {"stream", "hub_id", "label", "mmr_root", "checkpoint", *_COUNTS}
_KEYS: Final = {
    "query_id",
    "result_id",
    "version",
    "row_count",
    "evidence_policy",
    "rows_hash",
    "evidence_hash",
    "executed_at",
    "hub_id",
    "coverage",
    "limits",
}
_OPTIONAL: Final = {"profile_id"}


def read_digest(data: bytes) -> ResultDigest:
    """Decode a digest; raise ``DecodeError`` that names the field."""
    try:
        item = canonical_json.decode_canonical(data, max_bytes=MAX_DIGEST_BYTES)
    except QueryError as exc:
        raise _fail("", exc.message) from None
    parts = _object("", item, _KEYS, _OPTIONAL)
    if parts["version"] != VERSION or isinstance(parts["version"], bool):
        raise _fail("version", f"want {VERSION}")
    try:
        policy = read_evidence(parts["evidence_policy"])
    except QueryError as exc:
        raise _fail("evidence_policy", exc.message) from None
    executed = parse_timestamp(_text("executed_at", parts["executed_at"]))
    if executed is None:
        raise _fail("executed_at", "want a timestamp (query-api §3.2)")
    digest = ResultDigest(
        query_id=_text("query_id", parts["query_id"]),
        result_id=_text("result_id", parts["result_id"]),
        row_count=_uint("row_count", parts["row_count"]),
        evidence_policy=policy,
        rows_hash=_hash("rows_hash", parts["rows_hash"]),
        evidence_hash=_hash("evidence_hash", parts["evidence_hash"]),
        executed_at=executed,
        hub_id=_text("hub_id", parts["hub_id"]),
        profile_id=None if "profile_id" not in parts else _text("profile_id", parts["profile_id"]),
        coverage=_each("coverage", parts["coverage"], _source),
        limits=_each("limits", parts["limits"], _limit),
    )
    if digest.canonical() != data:
        raise _fail("", "is not in the form in which digests are recorded")
    return digest


def _source(where: str, item: object) -> SourceCoverage:
    parts = _object(where, item, _SOURCE_KEYS)
    checkpoint, root = parts["checkpoint"], parts["mmr_root"]
    counts = {name: _uint(f"{where}.{name}", parts[name]) for name in _COUNTS}
    return SourceCoverage(
        stream=_text(f"{where}.stream", parts["stream"]),
        hub_id=HubId(bytes.fromhex(_hash(f"{where}.hub_id", parts["hub_id"]))),
        label=Label(bytes.fromhex(_hash(f"{where}.label", parts["label"]))),
        mmr_root=None if root is None else MmrRoot(bytes.fromhex(_hash(f"{where}.mmr_root", root))),
        checkpoint=None if checkpoint is None else _text(f"{where}.checkpoint", checkpoint),
        **counts,
    )


def _limit(where: str, item: object) -> dict[str, str]:
    parts = _object(where, item, {"limit", "means"})
    return {name: _text(f"{where}.{name}", parts[name]) for name in ("limit", "means")}


def _fail(where: str, why: str) -> DecodeError:
    return DecodeError(why, where=f"ResultDigest{'.' if where else ''}{where} (query-api §5.2)")


def _object(where: str, item: object, keys: set[str], optional: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]  # never changed
    if not isinstance(item, dict):
        raise _fail(where, "want an object")
    if missing := sorted(keys - item.keys()):
        raise _fail(where, f"{missing[0]} is missing")
    if unknown := sorted(item.keys() - keys - optional):
        raise _fail(where, f"unknown key {unknown[0][:40]!r}")
    return item


def _each(where: str, item: object, read: Callable[[str, object], T]) -> tuple[T, ...]:
    if not isinstance(item, list):
        raise _fail(where, "want an array")
    return tuple(read(f"{where}[{position}]", each) for position, each in enumerate(item))


def _text(where: str, item: object) -> str:
    if not isinstance(item, str):
        raise _fail(where, "want text")
    return item


def _hash(where: str, item: object) -> str:
    if not isinstance(item, str) or not _HASH.fullmatch(item):
        raise _fail(where, "want 64 digits of lowercase hex")
    return item


def _uint(where: str, item: object) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item <= U64_MAX:
        raise _fail(where, "want an unsigned integer")
    return item
