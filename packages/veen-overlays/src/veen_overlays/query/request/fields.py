"""Fields: the names that a query can project, filter and group by (query-api §4.2.5, RESOLUTIONS P10, P11).

A field is one of ``BASE_FIELDS``, ``payload``, or ``payload.`` and a dotted path into the payload. A part of
the path names a key of an object, or, in decimal, an element of an array. Keys that contain a dot cannot be
reached; project the whole ``payload`` for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from veen_overlays.query.errors import invalid

BASE_FIELDS: Final = (
    "subject_id",
    "principal_id",
    "event_type",
    "event_time",
    "origin",
    "hub_commit_time",
    "hub_commit_seq",
    "stream",
    "hub_id",
    "receipt_id",
    "attributed",
)
PAYLOAD: Final = "payload"
ALL_FIELDS: Final = (*BASE_FIELDS, PAYLOAD)
"""The fields that ``"*"`` selects in a query for rows."""
TIME_FIELDS: Final = ("event_time", "hub_commit_time")
"""Milliseconds inside, timestamps in rows (query-api §3.2)."""
MAX_PATH_PARTS: Final = 16
MAX_FIELD_CHARACTERS: Final = 256
_PREFIX: Final = "payload."
_PART: Final = re.compile(r"[^.\x00-\x1f\x7f\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class QueryField:
    """One field of a query. ``path`` is None for a base field and empty for the whole payload."""

    name: str
    path: tuple[str, ...] | None = None

    @property
    def in_payload(self) -> bool:
        """Whether the value comes from the payload, and not from a column."""
        return self.path is not None


def parse_field(name: object, where: str) -> QueryField:
    """Return the field of this name; ``where`` names the part of the descriptor in the error (§4.4)."""
    if type(name) is not str:
        raise invalid(
            where, "the name of a field is not text", f"use {', '.join(ALL_FIELDS)} or payload.PATH"
        )
    if name in BASE_FIELDS:
        return QueryField(name)
    if name in (PAYLOAD, "payload.*"):
        return QueryField(PAYLOAD, ())
    if len(name) > MAX_FIELD_CHARACTERS:
        raise invalid(
            where,
            f"the name of a field has {len(name)} characters, at most {MAX_FIELD_CHARACTERS} are allowed",
            "project a shorter path, or the whole payload",
        )
    if not name.startswith(_PREFIX):
        raise invalid(where, f"{name!r} is not a field", f"use {', '.join(ALL_FIELDS)} or payload.PATH")
    parts = tuple(name.removeprefix(_PREFIX).split("."))
    if len(parts) > MAX_PATH_PARTS or not all(_PART.fullmatch(part) for part in parts):
        raise invalid(
            where,
            f"{name!r} is not a path into the payload",
            f"write payload.KEY or payload.KEY.KEY, with 1 to {MAX_PATH_PARTS} keys that are not empty",
        )
    return QueryField(name, parts)
