"""The errors of the Query API: one code and one HTTP status for each (query-api §7.6, §10.1)."""

from __future__ import annotations

import enum
from typing import Final

from veen_core.errors import VeenError


class QueryErrorCode(enum.StrEnum):
    """The ``error_code`` of a refused or failed query (query-api §7.6)."""

    INVALID_JSON = "invalid_json"
    INVALID_QUERY_DESCRIPTOR = "invalid_query_descriptor"
    UNSUPPORTED_VERSION = "unsupported_version"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN_SCOPE = "forbidden_scope"
    QUERY_NOT_FOUND = "query_not_found"
    DUPLICATE_QUERY_ID = "duplicate_query_id"
    RESULT_NOT_READY = "result_not_ready"
    LIMIT_EXCEEDED = "limit_exceeded"
    EXECUTION_FAILED = "execution_failed"
    INTERNAL_ERROR = "internal_error"


STATUS: Final[dict[QueryErrorCode, int]] = {
    QueryErrorCode.INVALID_JSON: 400,
    QueryErrorCode.INVALID_QUERY_DESCRIPTOR: 400,
    QueryErrorCode.UNSUPPORTED_VERSION: 400,
    QueryErrorCode.UNAUTHORIZED: 401,
    QueryErrorCode.FORBIDDEN_SCOPE: 403,
    QueryErrorCode.QUERY_NOT_FOUND: 404,
    QueryErrorCode.DUPLICATE_QUERY_ID: 409,
    QueryErrorCode.RESULT_NOT_READY: 425,
    QueryErrorCode.LIMIT_EXCEEDED: 429,
    QueryErrorCode.EXECUTION_FAILED: 500,
    QueryErrorCode.INTERNAL_ERROR: 500,
}
"""The HTTP status of each code. ``limit_exceeded`` is ours; §7.6 recommends codes and allows others."""


class QueryError(VeenError):
    """A query is refused or fails; ``code`` and ``status`` are those of query-api §7.6."""

    def __init__(self, code: QueryErrorCode, message: str, *, action: str | None = None) -> None:
        super().__init__(message, action=action)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return STATUS[self.code]

    def as_json(self) -> dict[str, str]:
        """The error payload (query-api §7.6)."""
        return {"error_code": str(self.code), "message": str(self)}


def invalid(where: str, why: str, action: str) -> QueryError:
    """Return the error of a descriptor that breaks a rule of query-api §4; ``where`` names the field."""
    return QueryError(QueryErrorCode.INVALID_QUERY_DESCRIPTOR, f"{where}: {why}", action=action)


def execution_failed(message: str, action: str) -> QueryError:
    """Return the error of a query that was valid and could not be executed (query-api §8.1)."""
    return QueryError(QueryErrorCode.EXECUTION_FAILED, message, action=action)
