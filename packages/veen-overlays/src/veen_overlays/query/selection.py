"""Selection: which events match a descriptor, and the row of each (query-api §4.2, §5.1, RESOLUTIONS P11).

``Selection`` is a descriptor prepared for many events. An engine may evaluate ``filter`` on base columns by
its own means; ``matches`` and ``row`` are the rules that every engine must agree with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from veen_overlays.query import canonical_json
from veen_overlays.query.canonical_json import Json
from veen_overlays.query.errors import QueryError, execution_failed
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.fields import QueryField
from veen_overlays.query.request.filter import Filter
from veen_overlays.query.values import at_path, rendered


class EventFields(Protocol):
    """The values of an event that a selection reads; ``SourceEvent`` and rows of engines provide them."""

    @property
    def stream(self) -> str: ...
    @property
    def hub_id(self) -> bytes: ...
    @property
    def hub_commit_seq(self) -> int: ...
    @property
    def hub_commit_time(self) -> int: ...
    @property
    def subject_id(self) -> str: ...
    @property
    def principal_id(self) -> bytes: ...
    @property
    def event_type(self) -> str: ...
    @property
    def event_time(self) -> int: ...
    @property
    def origin(self) -> str: ...
    @property
    def attributed(self) -> bool: ...
    @property
    def receipt_id(self) -> str: ...
    @property
    def payload_json(self) -> bytes: ...


class FieldReader:
    """Reads the fields of one event; decodes the payload at most once, and only if a field needs it."""

    __slots__ = ("_decoded", "_payload", "event")

    def __init__(self, event: EventFields) -> None:
        self.event = event
        self._payload: Json = None
        self._decoded = False

    def read(self, field: QueryField) -> Json:
        """Return the value of a field; bytes as hex, times in milliseconds."""
        if field.path is None:
            value = getattr(self.event, field.name)
            return value.hex() if isinstance(value, bytes) else value
        if not self._decoded:
            self._payload = self._decode()
            self._decoded = True
        return at_path(self._payload, field.path)

    def _decode(self) -> Json:
        try:
            return canonical_json.decode(self.event.payload_json)
        except QueryError as exc:
            raise execution_failed(
                f"the payload of entry {self.event.hub_commit_seq} of {self.event.stream!r} is damaged: "
                f"{exc.message}",
                "rebuild the view from the log",
            ) from None


@dataclass(frozen=True, slots=True)
class _Test:
    """One condition of ``filter.where``, with its values in canonical JSON."""

    field: QueryField
    allowed: frozenset[bytes]


class Selection:
    """The filter and projection of one descriptor."""

    def __init__(self, descriptor: QueryDescriptor) -> None:
        self.filter: Filter = descriptor.filter
        self.projection = descriptor.projection
        self._tests = tuple(_Test(each.field, each.encoded) for each in descriptor.filter.where)
        self._types = None if self.filter.event_type is None else frozenset(self.filter.event_type)

    def matches(self, reader: FieldReader) -> bool:
        """Return whether the filter selects the event (query-api §4.2.4)."""
        return self.matches_base(reader.event) and self.matches_where(reader)

    def matches_base(self, event: EventFields) -> bool:
        """Return whether subject, type and commit time match; the time range excludes its end (P11)."""
        wanted = self.filter
        return (
            (wanted.subject_id is None or event.subject_id == wanted.subject_id)
            and (self._types is None or event.event_type in self._types)
            and (wanted.time_from is None or event.hub_commit_time >= wanted.time_from)
            and (wanted.time_to is None or event.hub_commit_time < wanted.time_to)
        )

    def matches_where(self, reader: FieldReader) -> bool:
        """Return whether every condition of ``filter.where`` holds."""
        return all(canonical_json.encode(reader.read(test.field)) in test.allowed for test in self._tests)

    def row(self, reader: FieldReader) -> Mapping[str, Any]:
        """Return the ResultRow of an event: every projected field, null if it has no value (§5.1)."""
        return {field.name: rendered(field.name, reader.read(field)) for field in self.projection}
