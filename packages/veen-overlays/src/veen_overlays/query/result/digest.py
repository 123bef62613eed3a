"""ResultDigest: ids and hashes of a result (query-api §5.2 to §5.4, RESOLUTIONS P11, P13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from veen_core.hashing import H, Ht
from veen_core.ids import HubId
from veen_overlays.query import canonical_json
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.evidence_policy import EvidenceMode, EvidencePolicy
from veen_overlays.query.request.timestamp import format_timestamp
from veen_overlays.query.result.coverage import Prefix, SourceCoverage

VERSION: Final = 1


def result_id(descriptor: QueryDescriptor, prefixes: Iterable[Prefix]) -> str:
    """Return ``r-`` and 32 hex digits of ``Ht("veen/query-result", [descriptor, prefixes])`` (P11).

    The prefixes are known when a query is submitted (query-api §7.2). The counts of the coverage are a
    function of the prefixes, and so are left out (ADR 0020).
    """
    item = [descriptor.as_json(), [prefix.committed_json() for prefix in prefixes]]
    return f"r-{Ht('veen/query-result', canonical_json.encode(item)).hex()[:32]}"


class RowsHasher:
    """``rows_hash`` of rows that arrive one by one: SHA-256 of the canonical JSON of their array (§5.3)."""

    def __init__(self) -> None:
        self._hash = sha256(b"[")
        self.count = 0

    def add(self, encoded: bytes) -> None:
        """Add the canonical JSON of the next row."""
        self._hash.update(b"," + encoded if self.count else encoded)
        self.count += 1

    def hexdigest(self) -> str:
        """Return the rows_hash of the rows so far."""
        whole = self._hash.copy()
        whole.update(b"]")
        return whole.hexdigest()


def rows_hash(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows_hash of rows in the order in which they are returned (query-api §5.3)."""
    hasher = RowsHasher()
    for row in rows:
        hasher.add(canonical_json.encode(row))
    return hasher.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedReceipt:
    """One verified entry of the evidence summary (query-api §5.4)."""

    receipt_id: str
    mmr_root: bytes
    """The root at ``to_seq`` of the event's source."""
    hub_id: HubId
    row_hash: bytes | None = None
    """Hash of the canonical JSON of the event's row; None in an aggregate, whose rows rest on many events."""

    def as_json(self) -> dict[str, str]:
        item = {
            "receipt_id": self.receipt_id,
            "mmr_root": self.mmr_root.hex(),
            "hub_id": self.hub_id.hex(),
        }
        return item if self.row_hash is None else item | {"row_hash": self.row_hash.hex()}


def evidence_summary(
    descriptor: QueryDescriptor,
    coverage: Sequence[SourceCoverage],
    verified: Sequence[VerifiedReceipt] = (),
    matched: bytes | None = None,
) -> dict[str, Any]:
    """Return the evidence summary, coverage included (query-api §5.4, P13).

    ``matched`` is for mode "spot": the receipt hashes of all matched events, in the order of P11. The summary
    commits to them, since the sample follows from them (P14).
    """
    policy = descriptor.evidence
    summary: dict[str, Any] = {
        "mode": str(policy.mode),
        "coverage": [source.counts_json() for source in coverage],
    }
    if policy.mode == EvidenceMode.NONE:
        return summary
    if policy.sample_rate is not None:
        summary |= {"sample_rate": policy.sample_rate, "matched_hash": H(matched or b"").hex()}
    return summary | {
        "query_id": descriptor.query_id,
        "result_id": result_id(descriptor, coverage),
        "verified": [entry.as_json() for entry in verified],
    }


def evidence_hash(summary: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON of an evidence summary, in hex (query-api §5.4)."""
    return H(canonical_json.encode(summary)).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDigest:
    """The record of a result in record/query/results (query-api §5.2, §5.5)."""

    query_id: str
    result_id: str
    row_count: int
    evidence_policy: EvidencePolicy
    rows_hash: str
    evidence_hash: str
    executed_at: int
    """When all rows were known, in milliseconds since 1970."""
    hub_id: str
    """The hub at which the query was executed, in hex; the coverage names the hubs of the events."""
    profile_id: str | None = None
    coverage: tuple[SourceCoverage, ...]
    limits: tuple[dict[str, str], ...] = ()
    """What the result cannot prove (P13); see ``limits``."""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form (query-api §5.2, with the additions of P13)."""
        item: dict[str, Any] = {
            "query_id": self.query_id,
            "result_id": self.result_id,
            "version": VERSION,
            "row_count": self.row_count,
            "evidence_policy": self.evidence_policy.as_json(),
            "rows_hash": self.rows_hash,
            "evidence_hash": self.evidence_hash,
            "executed_at": format_timestamp(self.executed_at),
            "hub_id": self.hub_id,
            "coverage": [source.as_json() for source in self.coverage],
            "limits": list(self.limits),
        }
        return item if self.profile_id is None else item | {"profile_id": self.profile_id}

    def canonical(self) -> bytes:
        """Return the JSON form in canonical JSON (query-api §5.5)."""
        return canonical_json.encode(self.as_json())
