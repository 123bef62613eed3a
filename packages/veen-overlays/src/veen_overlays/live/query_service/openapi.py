"""The OpenAPI 3.1 document of the service (query-api-spec §7); the tests compare it with the answers."""

from __future__ import annotations

import functools
from typing import Any, Final

from veen_overlays.query.errors import STATUS, QueryErrorCode
from veen_overlays.query.request.fields import ALL_FIELDS

TITLE: Final = "VEEN Query API"
VERSION: Final = "0.0.1"
Schema = dict[str, Any]


def _object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Schema, *, least: int = 1, most: int = 64) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
HEX32: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
TIME: Final[Schema] = {
    "type": "string",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z$",
    "examples": ["2025-11-19T03:20:00.000Z"],
}
QUERY_ID: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._~:-]{0,127}$"}
RESULT_ID: Final[Schema] = {"type": "string", "pattern": "^r-[0-9a-f]{32}$"}
FIELD: Final[Schema] = {
    "anyOf": [
        {"enum": list(ALL_FIELDS)},
        {"type": "string", "pattern": r"^payload(\.[^.\x00-\x1f\x7f]+){1,16}$", "maxLength": 256},
    ],
    "description": "A base field, or a path below payload, such as payload.status.",
}
METRIC: Final[Schema] = {
    "type": "string",
    "pattern": r"^(count|(min|max|sum|avg|count_distinct)\(.+\))$",
    "description": "count, or a function of a field, such as max(event_time).",
}
STREAM: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 256, "examples": ["record/app/http"]}

DESCRIPTOR: Final[Schema] = {
    **_object(
        ["scope", "filter", "projection", "evidence"],
        query_id=QUERY_ID,
        version={"const": 1},
        scope={**_list(STREAM), "uniqueItems": True},
        filter=_object(
            [],
            subject_id=_nullable({"type": "string", "minLength": 1, "maxLength": 1024}),
            event_type=_nullable(
                {**_list({"type": "string", "minLength": 1, "maxLength": 256}, most=256), "uniqueItems": True}
            ),
            time=_nullable(_object([], **{"from": _nullable(TIME), "to": _nullable(TIME)})),
            where=_nullable({"type": "object", "description": "For each field the values it may have."}),
        ),
        projection={"anyOf": [{"const": ["*"]}, {**_list(FIELD), "uniqueItems": True}]},
        aggregate=_nullable(
            _object(
                ["metrics"],
                group_by=_nullable({**_list(FIELD, least=0, most=16), "uniqueItems": True}),
                metrics={**_list(METRIC, most=32), "uniqueItems": True},
            )
        ),
        evidence={
            "oneOf": [
                _object(["mode"], mode={"enum": ["none", "full"]}, sample_rate={"type": "null"}),
                _object(
                    ["mode", "sample_rate"],
                    mode={"const": "spot"},
                    sample_rate={"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                ),
            ]
        },
        meta=_nullable({"type": "object"}),
    ),
    "examples": [
        {
            "scope": ["record/app/http"],
            "filter": {"subject_id": "user:123"},
            "projection": ["event_time", "event_type", "receipt_id"],
            "evidence": {"mode": "full"},
        }
    ],
}
RECORD_EVENT: Final = _object(
    ["stream", "seq", "hub_id", "receipt_id", "receipt"],
    stream=TEXT,
    seq={"type": "integer", "minimum": 1},
    hub_id=HEX32,
    receipt_id={"type": "string", "pattern": "^rcpt-[0-9a-f]{64}$"},
    receipt={"type": "string", "pattern": "^([0-9a-f]{2})+$", "description": "The RECEIPT in hex."},
)
COVERAGE: Final = _object(
    [
        "stream",
        "hub_id",
        "label",
        "epoch",
        "from_seq",
        "to_seq",
        "mmr_root",
        "scanned",
        "opened",
        "unopened",
        "pruned",
        "matched",
    ],
    stream=TEXT,
    hub_id=HEX32,
    label=HEX32,
    epoch=COUNT,
    from_seq=COUNT,
    to_seq=COUNT,
    mmr_root=_nullable(HEX32),
    checkpoint=_nullable(TEXT),
    scanned=COUNT,
    opened=COUNT,
    unopened=COUNT,
    pruned=COUNT,
    matched=COUNT,
)
DIGEST: Final[Schema] = {
    "type": "object",
    "description": "ResultDigest (query-api-spec 5.2), with the coverage of RESOLUTIONS P13.",
    "required": [
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
    ],
    "properties": {
        "query_id": QUERY_ID,
        "result_id": RESULT_ID,
        "version": {"const": 1},
        "row_count": COUNT,
        "evidence_policy": {"type": "object"},
        "rows_hash": HEX32,
        "evidence_hash": HEX32,
        "executed_at": TIME,
        "hub_id": HEX32,
        "profile_id": TEXT,
        "coverage": {"type": "array", "items": _ref("Coverage")},
        "limits": {"type": "array", "items": {"type": "object"}},
    },
}
SCHEMAS: Final[dict[str, Schema]] = {
    "QueryDescriptor": DESCRIPTOR,
    "Coverage": COVERAGE,
    "ResultDigest": DIGEST,
    "RecordEvent": RECORD_EVENT,
    "Accepted": _object(
        ["query_id", "result_id", "status"],
        query_id=QUERY_ID,
        result_id=RESULT_ID,
        status={"enum": ["pending", "running", "completed", "failed"]},
    ),
    "Status": _object(
        ["query_id", "result_id", "status", "error_code", "message"],
        query_id=QUERY_ID,
        result_id=RESULT_ID,
        status={"enum": ["pending", "running", "completed", "failed"]},
        error_code=_nullable(TEXT),
        message=_nullable(TEXT),
    ),
    "Result": _object(
        ["result_digest", "rows", "page", "record_event"],
        result_digest=_ref("ResultDigest"),
        rows={"type": "array", "items": {"type": "object"}},
        page=_object(
            ["offset", "limit", "total", "has_more"],
            offset=COUNT,
            limit=COUNT,
            total=COUNT,
            has_more={"type": "boolean"},
        ),
        record_event=_ref("RecordEvent"),
    ),
    "Recorded": _object(
        ["descriptor", "record_event"], descriptor=_ref("QueryDescriptor"), record_event=_ref("RecordEvent")
    ),
    "Error": _object(
        ["error_code", "message"],
        error_code={
            "type": "string",
            "examples": [str(code) for code in QueryErrorCode],
        },
        message=TEXT,
    ),
}


def _errors(*codes: QueryErrorCode) -> dict[str, Schema]:
    """The error answers of an operation, by status; 401 and 503 are answers of every operation."""
    by_status: dict[int, list[str]] = {}
    for code in (QueryErrorCode.UNAUTHORIZED, *codes):
        by_status.setdefault(STATUS[code], []).append(str(code))
    by_status[503] = ["internal_error"]
    return {
        str(status): {
            "description": ", ".join(names),
            "content": {"application/json": {"schema": _ref("Error")}},
        }
        for status, names in sorted(by_status.items())
    }


def _json(description: str, name: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": _ref(name)}}}


def _parameter(name: str, schema: Schema, where: str = "query") -> Schema:
    return {"name": name, "in": where, "required": where == "path", "schema": schema}


def _paths() -> dict[str, Any]:
    code = QueryErrorCode
    of_result = [_parameter("result_id", TEXT, "path")]
    return {
        "/query/submit": {
            "post": {
                "operationId": "submit",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _ref("QueryDescriptor")}},
                },
                "responses": {
                    "202": _json("The query is recorded and will be executed.", "Accepted"),
                    **_errors(
                        code.INVALID_JSON,
                        code.INVALID_QUERY_DESCRIPTOR,
                        code.UNSUPPORTED_VERSION,
                        code.FORBIDDEN_SCOPE,
                        code.DUPLICATE_QUERY_ID,
                        code.LIMIT_EXCEEDED,
                    ),
                },
            }
        },
        "/query/status/{result_id}": {
            "get": {
                "operationId": "status",
                "parameters": [
                    *of_result,
                    _parameter("wait", {"type": "integer", "minimum": 0, "maximum": 30}),
                ],
                "responses": {
                    "200": _json("The state of the query.", "Status"),
                    **_errors(code.INVALID_QUERY_DESCRIPTOR, code.QUERY_NOT_FOUND),
                },
            }
        },
        "/query/result/{result_id}": {
            "get": {
                "operationId": "result",
                "parameters": [
                    *of_result,
                    _parameter("offset", {"type": "integer", "minimum": 0, "maximum": 2**53}),
                    _parameter("limit", {"type": "integer", "minimum": 1, "maximum": 2**53, "default": 1000}),
                ],
                "responses": {
                    "200": _json("A page of rows, and the digest of all rows.", "Result"),
                    **_errors(
                        code.INVALID_QUERY_DESCRIPTOR,
                        code.QUERY_NOT_FOUND,
                        code.RESULT_NOT_READY,
                        code.EXECUTION_FAILED,
                    ),
                },
            }
        },
        "/query/descriptor/{query_id}": {
            "get": {
                "operationId": "descriptor",
                "parameters": [_parameter("query_id", TEXT, "path")],
                "responses": {
                    "200": _json("The descriptor, and where it is recorded.", "Recorded"),
                    **_errors(code.QUERY_NOT_FOUND),
                },
            }
        },
        "/query/evidence/{result_id}": {
            "get": {
                "operationId": "evidence",
                "parameters": of_result,
                "responses": {
                    "200": {
                        "description": "The result file: rows, digest, evidence and coverage in one.",
                        "content": {"application/cbor": {"schema": {"type": "string", "format": "binary"}}},
                    },
                    **_errors(code.QUERY_NOT_FOUND, code.RESULT_NOT_READY, code.EXECUTION_FAILED),
                },
            }
        },
    }


@functools.cache
def document() -> dict[str, Any]:
    """Return the document. The paths are below /api; /api/v1 serves the same (query-api-spec 10.2)."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": TITLE,
            "version": VERSION,
            "description": "Queries over recorder events, with verifiable digests. Descriptor and result "
            "versions: 1.",
        },
        "servers": [{"url": "/api/v1"}, {"url": "/api"}],
        "security": [{"bearer": []}, {"certificate": []}],
        "paths": _paths(),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }
