"""The Query API's model: queries as data, engines as a protocol, results that carry their proof (query-api).

``request`` declares queries, ``result`` their results, ``verify`` verifies a result. The other modules are
the protocol of engines, the plain loop that all engines must agree with, aggregation, and canonical JSON.

Pure: no IO, no clock, no randomness. ``docs/concepts/queries.md`` introduces it; ADR 0020 has the decisions.
"""

from veen_overlays.query.engine import Budget, QueryAnswer, QueryEngine, SourceReceipt
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.query.event import SourceEvent
from veen_overlays.query.request.descriptor import QueryDescriptor, normalise, parse_descriptor, query_id_of
from veen_overlays.query.result.coverage import Prefix, SourceCoverage

__all__ = [
    "Budget",
    "Prefix",
    "QueryAnswer",
    "QueryDescriptor",
    "QueryEngine",
    "QueryError",
    "QueryErrorCode",
    "SourceCoverage",
    "SourceEvent",
    "SourceReceipt",
    "normalise",
    "parse_descriptor",
    "query_id_of",
]
