"""Make recorder events: route them by their type, and refuse what a stream must not contain (SDR0 3.2).

Everything is checked before a message is sealed. A payload that is too large, not JSON-like or not
encodable never reaches the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from veen_core import cbor
from veen_core.errors import DecodeError, EncodeError
from veen_core.hashing import U64_MAX
from veen_core.ids import ClientId
from veen_overlays.recorder.profile import MAX_NAME_BYTES, RecorderProfile
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds
from veen_overlays.schema.record import MAX_NESTING

MAX_SUBJECT_BYTES: Final = 1_024
"""Longest subject_id or origin."""
LINE_KEYS: Final = frozenset(("event_type", "subject_id", "event_time", "origin", "payload"))
"""The keys of one event in JSON lines."""


class EventError(EncodeError):
    """An event that must not be recorded; nothing was sealed or sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedEvent:
    """An event and the one stream of its type."""

    stream: str
    event: RecordEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMaker:
    """Makes the events of one producer."""

    profile: RecorderProfile
    principal: ClientId
    origin: str
    """The origin of events that name none."""

    def make(
        self,
        event_type: str,
        *,
        subject: str,
        event_time: int,
        payload: Any = None,
        origin: str | None = None,
    ) -> RoutedEvent:
        """Return the event and its stream; raise ``EventError`` or ``ConfigError``."""
        stream = self.profile.stream_of(event_type)
        _check_text("subject_id", subject)
        _check_text("origin", self.origin if origin is None else origin)
        if not 0 <= event_time <= U64_MAX:
            raise EventError(f"event_time {event_time} is not a time in milliseconds since 1970")
        check_payload(payload, self.profile.max_payload_bytes, event_type)
        event = RecordEvent(
            subject_id=subject,
            principal_id=self.principal,
            event_type=event_type,
            event_time=UnixMilliseconds(event_time),
            origin=self.origin if origin is None else origin,
            payload=payload,
        )
        return RoutedEvent(stream=stream, event=event)

    def from_json(self, item: Any, *, now: int) -> RoutedEvent:
        """Return the event of one JSON object; ``now`` in milliseconds is the default of its time."""
        if not isinstance(item, Mapping):
            raise EventError("an event must be a JSON object")
        if unknown := next((key for key in item if key not in LINE_KEYS), None):
            known = ", ".join(sorted(LINE_KEYS))
            raise EventError(f"unknown key {unknown[:MAX_NAME_BYTES]!r}; an event has {known}")
        event_type, subject = item.get("event_type"), item.get("subject_id")
        if not isinstance(event_type, str) or not isinstance(subject, str):
            raise EventError("an event must have event_type and subject_id, as text")
        event_time, origin = item.get("event_time", now), item.get("origin")
        if type(event_time) is not int:
            raise EventError("event_time must be an integer: milliseconds since 1970, UTC")
        if origin is not None and not isinstance(origin, str):
            raise EventError("origin must be text")
        return self.make(
            event_type, subject=subject, event_time=event_time, payload=item.get("payload"), origin=origin
        )


def _check_text(name: str, value: str) -> None:
    if not value or len(value.encode(errors="replace")) > MAX_SUBJECT_BYTES:
        raise EventError(f"{name} must have from 1 to {MAX_SUBJECT_BYTES} bytes")


def check_payload(payload: Any, most: int, event_type: str) -> None:
    """Raise ``EventError`` unless the payload is JSON-like and within the bound."""
    _check_value(payload, "payload", MAX_NESTING)
    try:
        size = len(cbor.encode(payload))
    except (EncodeError, DecodeError) as exc:
        raise EventError(f"the payload of event {event_type} cannot be encoded: {exc}") from None
    if size > most:
        raise EventError(
            f"the payload of event {event_type} has {size} bytes, more than max_payload_bytes = {most}",
            action="record less, or record a hash and keep the content elsewhere",
        )


def _check_value(value: Any, where: str, depth: int) -> None:
    if isinstance(value, float):
        raise EventError(
            f"{where} is a float, which deterministic CBOR does not have (RESOLUTIONS B3)",
            action="record an integer of a smaller unit, or text",
        )
    if not isinstance(value, dict | list):
        return
    if not depth:
        raise EventError(f"{where[:MAX_NAME_BYTES]} nests deeper than {MAX_NESTING} levels")
    if isinstance(value, list):
        for at, each in enumerate(value):
            _check_value(each, f"{where}[{at}]", depth - 1)
        return
    for key, each in value.items():
        if not isinstance(key, str):
            raise EventError(f"{where} has a key that is not text")
        _check_value(each, f"{where}.{key}", depth - 1)


def plain_payload(value: Any, depth: int = MAX_NESTING) -> Any:
    """Return a Python value as a payload: floats and unknown objects become text, tuples become arrays.

    For log calls, which must not fail because of a value: ``json`` would write the same float as a number.
    """
    if value is None or isinstance(value, bool | bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # without lone surrogates, which UTF-8 does not have
    if isinstance(value, int):
        return value if cbor.INT_MIN <= value <= U64_MAX else str(value)
    if isinstance(value, float):
        return repr(value) if isfinite(value) else str(value)
    if depth and isinstance(value, Mapping):
        return {str(key): plain_payload(each, depth - 1) for key, each in value.items()}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [plain_payload(each, depth - 1) for each in value]
    return str(value)
