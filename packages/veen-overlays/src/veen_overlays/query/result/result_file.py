"""ResultFile: a query result that travels as one file, ``.veenq`` (query-api §5, RESOLUTIONS P13).

One deterministic CBOR map: descriptor, digest and rows in canonical JSON, and the evidence. ``verification``
verifies it without a hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from veen_core.errors import DecodeError
from veen_core.hashing import H
from veen_core.wire import Wire, int_map
from veen_overlays.query import canonical_json
from veen_overlays.query.engine import QueryAnswer, Row
from veen_overlays.query.errors import QueryError
from veen_overlays.query.event import receipt_id
from veen_overlays.query.request.descriptor import QueryDescriptor, normalise
from veen_overlays.query.result.digest import (
    ResultDigest,
    RowsHasher,
    VerifiedReceipt,
    evidence_hash,
    evidence_summary,
    result_id,
)
from veen_overlays.query.result.evidence import ResultEvidence, chosen, matched_hashes
from veen_overlays.query.result.limits import limits_of
from veen_overlays.query.result.read_digest import read_digest

KIND: Final = "veen-query-result"
SUFFIX: Final = ".veenq"
MAX_RESULT_BYTES: Final = 64 * 1_048_576
"""Most bytes of a file; `veen verify` reads no larger object."""


@int_map("query result", section="query-api §5")
@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile(Wire):
    """A result with everything that is needed to verify it."""

    kind: Literal["veen-query-result"] = KIND
    ver: Literal[1] = 1
    descriptor_json: bytes
    """The QueryDescriptor in canonical JSON."""
    digest_json: bytes
    """The ResultDigest in canonical JSON."""
    rows_json: bytes
    """The array of rows in canonical JSON: ``rows_hash`` is its SHA-256."""
    row_hashes: bytes
    """The hash of each row's canonical JSON, 32 bytes each. They identify an altered row; ``rows_hash``
    proves the rows."""
    evidence: ResultEvidence

    @property
    def descriptor(self) -> QueryDescriptor:
        """The descriptor; raise ``DecodeError`` unless it is in normal form."""
        try:
            item = canonical_json.decode_canonical(self.descriptor_json, max_bytes=MAX_RESULT_BYTES)
            descriptor = normalise(item, new_query_id="")
        except QueryError as exc:
            raise DecodeError(exc.message, where="query result.descriptor (query-api §4)") from None
        if descriptor.canonical() != self.descriptor_json:
            raise DecodeError("is not in normal form", where="query result.descriptor (query-api §4.4)")
        return descriptor

    @property
    def digest(self) -> ResultDigest:
        """The digest; raise ``DecodeError`` if its JSON is not a digest."""
        return read_digest(self.digest_json)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows; raise ``DecodeError`` unless they are an array of objects."""
        where = "query result.rows (query-api §5.1)"
        try:
            rows = canonical_json.decode(self.rows_json, max_bytes=MAX_RESULT_BYTES)
        except QueryError as exc:
            raise DecodeError(exc.message, where=where) from None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise DecodeError("want an array of objects", where=where)
        return rows  # type: ignore[return-value]  # just checked


def parse_result(data: bytes) -> ResultFile:
    """Decode a ``.veenq`` file; nothing is verified."""
    if len(data) > MAX_RESULT_BYTES:
        raise DecodeError(
            f"has {len(data)} bytes, at most {MAX_RESULT_BYTES} are allowed",
            where="query result (query-api §5)",
        )
    return ResultFile.decode(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """When and where a query was executed (query-api §5.2)."""

    executed_at: int
    """When all rows were known, in milliseconds since 1970."""
    hub_id: str
    """The executing hub."""
    profile_id: str | None = None


def make_digest(
    descriptor: QueryDescriptor,
    answer: QueryAnswer,
    execution: Execution,
    *,
    encoded: list[bytes] | None = None,
) -> ResultDigest:
    """Return the digest of an answer whose evidence was built and verified (query-api §5.2).

    ``encoded`` has the canonical JSON of each row, if the caller has it already.
    """
    rows = split_rows(answer.rows) if encoded is None else encoded
    hasher = RowsHasher()
    for row in rows:
        hasher.add(row)
    verified = verified_receipts(descriptor, answer, rows)
    matched = matched_hashes(descriptor, answer.sources)
    summary = evidence_summary(descriptor, answer.coverage, verified, matched)
    return ResultDigest(
        query_id=descriptor.query_id,
        result_id=result_id(descriptor, answer.coverage),
        row_count=len(rows),
        evidence_policy=descriptor.evidence,
        rows_hash=hasher.hexdigest(),
        evidence_hash=evidence_hash(summary),
        executed_at=execution.executed_at,
        hub_id=execution.hub_id,
        profile_id=execution.profile_id,
        coverage=answer.coverage,
        limits=limits_of(descriptor, answer.coverage),
    )


def verified_receipts(
    descriptor: QueryDescriptor, answer: QueryAnswer, encoded_rows: list[bytes]
) -> list[VerifiedReceipt]:
    """Return the entries of the evidence summary (query-api §5.4); the receipts must have been verified."""
    row_of: dict[tuple[int, int], bytes] = {}
    if descriptor.aggregate is None and answer.sources:
        row_of = {
            (each.source, each.seq): row for each, row in zip(answer.sources, encoded_rows, strict=True)
        }
    found = []
    for each in chosen(descriptor, answer.sources):
        source = answer.coverage[each.source]
        row = row_of.get((each.source, each.seq))
        assert source.mmr_root is not None  # it has an entry
        found.append(
            VerifiedReceipt(
                receipt_id=receipt_id(each.receipt),
                mmr_root=source.mmr_root,
                hub_id=source.hub_id,
                row_hash=None if row is None else H(row),
            )
        )
    return found


def make_result(
    descriptor: QueryDescriptor, answer: QueryAnswer, evidence: ResultEvidence, execution: Execution
) -> ResultFile:
    """Return the result file of an answer and its verified evidence."""
    rows = split_rows(answer.rows)
    digest = make_digest(descriptor, answer, execution, encoded=rows)
    return ResultFile(
        descriptor_json=descriptor.canonical(),
        digest_json=digest.canonical(),
        rows_json=encode_rows(rows),
        row_hashes=b"".join(H(row) for row in rows),
        evidence=evidence,
    )


def encode_rows(encoded: list[bytes]) -> bytes:
    """Return the canonical JSON of an array of rows that are encoded already (query-api §5.3)."""
    return b"[" + b",".join(encoded) + b"]"


def split_rows(rows: Sequence[Row]) -> list[bytes]:
    """Return the canonical JSON of each row."""
    return [canonical_json.encode(row) for row in rows]
