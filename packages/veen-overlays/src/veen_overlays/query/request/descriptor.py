"""QueryDescriptor: a query as data, validated and in its normal form (query-api §4, RESOLUTIONS P11, P12).

``parse_descriptor`` and ``normalise`` check everything that needs no deployment. Whether a stream exists, and
whether the principal may read it, is for the service and the engine to decide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from veen_overlays.query import canonical_json
from veen_overlays.query.canonical_json import Json
from veen_overlays.query.checks import check_unique, read_list, read_object, read_text, want
from veen_overlays.query.errors import QueryError, QueryErrorCode, invalid
from veen_overlays.query.request.aggregate import Aggregate, read_aggregate
from veen_overlays.query.request.evidence_policy import EvidencePolicy, read_evidence
from veen_overlays.query.request.fields import ALL_FIELDS, BASE_FIELDS, PAYLOAD, QueryField, parse_field
from veen_overlays.query.request.filter import Filter, read_filter

VERSION: Final = 1
MAX_DESCRIPTOR_BYTES: Final = 65_536
"""Most bytes of a descriptor, as sent and in canonical form: it travels in one MSG (query-api §4.5)."""
MAX_STREAMS: Final = 64
MAX_STREAM_CHARACTERS: Final = 256
MAX_PROJECTED: Final = 64
MAX_META_BYTES: Final = 16_384
_QUERY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:-]{0,127}")
_STREAM: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
_REQUIRED: Final = {
    "scope": "name at least one stream",
    "filter": "write {} to select all events",
    "projection": 'write ["*"] for all fields',
    "evidence": 'write {"mode": "none"} for a result without evidence',
}
_KEYS: Final = (
    "query_id",
    "version",
    "scope",
    "filter",
    "projection",
    "aggregate",
    "evidence",
    "meta",
)


def query_id_of(random: bytes) -> str:
    """Return a server's query_id from 16 random bytes: ``q-`` and their hex (P11)."""
    if len(random) != 16:
        raise ValueError("a query_id needs 16 random bytes")
    return f"q-{random.hex()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDescriptor:
    """A valid query in normal form; ``as_json`` is what record/query/requests stores (query-api §4.4)."""

    query_id: str
    scope: tuple[str, ...]
    filter: Filter
    projection: tuple[QueryField, ...]
    aggregate: Aggregate | None = None
    evidence: EvidencePolicy
    meta: dict[str, Json] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the normal form as a JSON object; absent optional parts are left out."""
        item: dict[str, Any] = {
            "query_id": self.query_id,
            "version": VERSION,
            "scope": list(self.scope),
            "filter": self.filter.as_json(),
            "projection": [field.name for field in self.projection],
            "evidence": self.evidence.as_json(),
        }
        if self.aggregate is not None:
            item["aggregate"] = self.aggregate.as_json()
        if self.meta is not None:
            item["meta"] = self.meta
        return item

    def canonical(self) -> bytes:
        """Return the normal form in canonical JSON."""
        return canonical_json.encode(self.as_json())


def parse_descriptor(data: bytes, *, new_query_id: str) -> QueryDescriptor:
    """Parse and normalise a submitted descriptor; ``QueryError`` says what is wrong (query-api §4.4)."""
    return normalise(canonical_json.decode(data, max_bytes=MAX_DESCRIPTOR_BYTES), new_query_id=new_query_id)


def normalise(item: Json, *, new_query_id: str) -> QueryDescriptor:
    """Validate a descriptor, fill its defaults and bring it into normal form (query-api §4.4).

    ``new_query_id`` is used if the descriptor has none; see ``query_id_of``. A normal form stays as it is.
    """
    where = "QueryDescriptor (query-api §4.1)"
    parts = read_object(item, where, _KEYS)
    _check_version(parts.get("version", VERSION))
    for name, action in _REQUIRED.items():
        if parts.get(name) is None:
            raise invalid(f"{name} (query-api §4.2)", "is missing", action)
    aggregate = None if parts.get("aggregate") is None else read_aggregate(parts["aggregate"])
    descriptor = QueryDescriptor(
        query_id=new_query_id if parts.get("query_id") is None else _read_query_id(parts["query_id"]),
        scope=_read_scope(parts["scope"]),
        filter=read_filter(parts["filter"]),
        projection=_read_projection(parts["projection"], aggregate),
        aggregate=aggregate,
        evidence=read_evidence(parts["evidence"]),
        meta=None if parts.get("meta") is None else _read_meta(parts["meta"]),
    )
    if (size := len(descriptor.canonical())) > MAX_DESCRIPTOR_BYTES:
        raise invalid(where, f"has {size} bytes in canonical JSON", f"use at most {MAX_DESCRIPTOR_BYTES}")
    return descriptor


def _check_version(version: object) -> None:
    where = "version (query-api §4.2)"
    if version is None:
        return
    if isinstance(version, bool) or not isinstance(version, int):
        raise want("the number 1", version, where, "write 1, or leave it out")
    if version != VERSION:
        raise QueryError(
            QueryErrorCode.UNSUPPORTED_VERSION,
            f"version (query-api §10.1): this server reads version {VERSION} of QueryDescriptor only",
            action=f"write the query as version {VERSION}",
        )


def _read_query_id(item: object) -> str:
    where = "query_id (query-api §2.2)"
    action = "use 1 to 128 ASCII letters, digits and . _ ~ : -, starting with a letter or digit"
    if type(item) is not str:
        raise want("text", item, where, action)
    if not _QUERY_ID.fullmatch(item):
        raise invalid(where, f"{item[:40]!r} is not a query_id", action)
    return item


def _read_scope(item: object) -> tuple[str, ...]:
    where = "scope (query-api §4.2)"
    names = tuple(
        read_text(each, where, MAX_STREAM_CHARACTERS) for each in read_list(item, where, MAX_STREAMS)
    )
    for name in names:
        if not _STREAM.fullmatch(name):
            raise invalid(where, "the name of a stream has a control character", "remove it")
    check_unique(names, where)
    return names


def _read_projection(item: object, aggregate: Aggregate | None) -> tuple[QueryField, ...]:
    where = "projection (query-api §4.2)"
    names = read_list(item, where, MAX_PROJECTED)
    if "*" in names:
        if len(names) > 1:
            raise invalid(where, '"*" is not alone', 'write ["*"], or name the fields')
        # The receipt_id of a group is a hash of all its receipts. It is costly, so "*" leaves it out.
        every = ALL_FIELDS if aggregate is None else tuple(f for f in BASE_FIELDS if f != "receipt_id")
        return tuple(QueryField(name, () if name == PAYLOAD else None) for name in every)
    fields = tuple(parse_field(each, where) for each in names)
    check_unique(fields, where)
    return fields


def _read_meta(item: object) -> dict[str, Json]:
    where = "meta (query-api §4.3)"
    if type(item) is not dict:
        raise want("an object", item, where, "write an object, or leave it out")
    if (size := len(canonical_json.encode(item))) > MAX_META_BYTES:
        raise invalid(where, f"has {size} bytes", f"use at most {MAX_META_BYTES} bytes")
    return item
