"""Requests, digests and accesses as records in the log (query-api-spec 2.1, 4.5, 5.5; spec-3 §9).

| stream | record | payload |
|---|---|---|
| record/query/requests | record.event.v1, event_type query.submitted | the descriptor |
| record/query/results | record.event.v1, event_type query.result | the ResultDigest |
| record/query/audit/access | query.audit.v1 | one access of a principal |

A payload is the canonical JSON as text: deterministic CBOR has no floats (B3), and a descriptor has one in
``sample_rate``. A record is written once. A crash may come after the hub has accepted a record and before its
receipt is stored here. Therefore ``RecordLog.end`` is stored before the record is sent, and after a restart
the record is searched from that position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol

from veen_core.errors import VeenError
from veen_core.ids import ClientId, UnixTime
from veen_core.receipt import Receipt
from veen_overlays.live.query_service.job import RecordedAt
from veen_overlays.live.query_service.principals import ServicePrincipal
from veen_overlays.query.errors import QueryError
from veen_overlays.recorder.records import QueryAudit, RecordEvent, ResultDigestHash, UnixMilliseconds
from veen_overlays.schema.record import Record

REQUESTS: Final = "record/query/requests"
RESULTS: Final = "record/query/results"
ACCESSES: Final = "record/query/audit/access"
STREAMS: Final = (REQUESTS, RESULTS, ACCESSES)
SUBMITTED: Final = "query.submitted"
RESULT: Final = "query.result"
ORIGIN: Final = "veen-query"


class HubUnavailableError(VeenError):
    """The hub cannot be reached, or does not take a record now; trying again later may help."""


class RecordLog(Protocol):
    """The log that the service writes its records to, as one identity.

    Each method raises ``HubUnavailableError`` if a later attempt may succeed.
    """

    @property
    def hub_id(self) -> bytes:
        """The hub that takes the records."""

    @property
    def identity(self) -> ClientId:
        """The identity that signs the records: the ``principal_id`` of the service."""

    async def end(self, stream: str) -> str:
        """Return a mark of the stream's present end, from which ``find`` searches."""

    async def append(self, stream: str, record: Record) -> Receipt:
        """Write a record; it is durable and its receipt is verified when this returns (H2)."""

    async def find(self, stream: str, mark: str, matches: Callable[[RecordEvent], bool]) -> Receipt | None:
        """Return the receipt of this identity's first matching event after the mark; None if there is none.

        Messages that a killed process left unanswered are settled first.
        """


def recorded_at(stream: str, hub_id: bytes, receipt: Receipt) -> RecordedAt:
    """Return where a record is, as query-api-spec 7.5 wants it."""
    wire = receipt.encode()
    return RecordedAt(
        stream=stream,
        seq=receipt.stream_seq,
        hub_id=hub_id.hex(),
        receipt_id=f"rcpt-{sha256(wire).hexdigest()}",
        receipt=wire.hex(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAccess:
    """One access of an authenticated principal, for the audit log (spec-3 9.2)."""

    principal: ServicePrincipal
    operation: str
    """submit, status, result, descriptor or evidence."""
    resource: str
    """The result_id or query_id that was named; for a submission its query_id, if it got one."""
    parameters: Mapping[str, Any]
    outcome: str
    """``ok``, or the error_code."""
    rows_hash: str | None = None

    def as_record(self, now: int) -> QueryAudit:
        """Return the audit record; ``now`` is in milliseconds."""
        return QueryAudit(
            requester_identity=self.principal.identity,
            resource_identifier=f"query/{self.operation}/{self.resource}",
            resource_class="query-result",
            query_parameters=dict(self.parameters) or None,
            result_digest=ResultDigestHash(bytes.fromhex(self.rows_hash)) if self.rows_hash else None,
            request_time=UnixTime(now // 1_000),
            metadata={"outcome": self.outcome, "principal": self.principal.name},
        )


class QueryRecords:
    """Writes the records of the service, each once."""

    def __init__(self, log: RecordLog, now: Callable[[], int]) -> None:
        """``now`` returns the time in milliseconds."""
        self._log, self._now = log, now

    @property
    def hub_id(self) -> bytes:
        """The hub that takes the records."""
        return self._log.hub_id

    async def end(self, stream: str) -> str:
        return await self._log.end(stream)

    async def request(self, descriptor: str, subject: str) -> RecordedAt:
        """Record a submission (query-api-spec 4.5)."""
        return await self._append(REQUESTS, self._event(SUBMITTED, subject, descriptor))

    async def result(self, digest: str) -> RecordedAt:
        """Record a ResultDigest (query-api-spec 5.5)."""
        return await self._append(RESULTS, self._event(RESULT, ORIGIN, digest))

    async def access(self, access: RecordedAccess) -> None:
        """Record an access; durable when this returns."""
        await self._log.append(ACCESSES, access.as_record(self._now()))

    async def find(
        self, stream: str, mark: str, event_type: str, matches: Callable[[str], bool]
    ) -> tuple[RecordedAt, str] | None:
        """Find a record that a killed process may have written; return its position and its payload."""
        found: list[str] = []

        def is_ours(event: RecordEvent) -> bool:
            ours = event.event_type == event_type and isinstance(event.payload, str)
            if ours and matches(event.payload):
                found.append(event.payload)
                return True
            return False

        receipt = await self._log.find(stream, mark, is_ours)
        return (recorded_at(stream, self.hub_id, receipt), found[0]) if receipt is not None else None

    def _event(self, event_type: str, subject: str, payload: str) -> RecordEvent:
        return RecordEvent(
            subject_id=subject,
            principal_id=self._log.identity,
            event_type=event_type,
            event_time=UnixMilliseconds(self._now()),
            origin=ORIGIN,
            payload=payload,
        )

    async def _append(self, stream: str, event: RecordEvent) -> RecordedAt:
        return recorded_at(stream, self.hub_id, await self._log.append(stream, event))


def outcome_of(error: QueryError | None) -> str:
    """Return the outcome of an access: ``ok``, or the error's code."""
    return "ok" if error is None else str(error.code)
