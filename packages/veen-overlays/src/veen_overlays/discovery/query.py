"""``disc.query.v1``: filters, pages and errors (spec-5 §6).

``answer`` never raises: whatever a request contains, the reply says what is wrong with it. Servers of the
exchange and local readers call the same function with the same time, so both give the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.ids import SchemaId
from veen_core.wire import Wire, text_map
from veen_overlays.discovery.directory import Conditions, Directory
from veen_overlays.discovery.records import KINDS, Kind, OverlayId, Query, QueryError, QueryResult
from veen_overlays.discovery.state import Listed

MAX_RESULTS: Final = 100
"""Lmax: most descriptors in one page (spec-5 6.2); a larger ``limit`` is lowered to it."""
MAX_RESULT_BYTES: Final = 524_288
"""Most bytes of descriptors in one page: half of what a message's body may have."""
BAD_KIND: Final = "disc.kind"
BAD_FILTER: Final = "disc.filter"


@text_map("disc.query.v1 hub filter", section="spec-5 6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubFilter(Wire):
    """The filter of the kind ``hub``."""

    region: str | None = None
    tags_any: tuple[str, ...] | None = None
    overlay_id: OverlayId | None = None


@text_map("disc.query.v1 service filter", section="spec-5 6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFilter(Wire):
    """The filter of the kind ``service``."""

    name_prefix: str | None = None
    method: str | None = None
    overlay_id: OverlayId | None = None
    region: str | None = None
    tags_any: tuple[str, ...] | None = None


@text_map("disc.query.v1 overlay filter", section="spec-5 6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayFilter(Wire):
    """The filter of the kind ``overlay``."""

    name_prefix: str | None = None
    schema: SchemaId | None = None
    tags_any: tuple[str, ...] | None = None


Filter = HubFilter | ServiceFilter | OverlayFilter
FILTERS: Final[dict[Kind, type[HubFilter] | type[ServiceFilter] | type[OverlayFilter]]] = {
    "hub": HubFilter,
    "overlay": OverlayFilter,
    "service": ServiceFilter,
}


class QueryPage(NamedTuple):
    """One page of a query."""

    found: tuple[Listed, ...]
    more: bool


def parse(query: Query) -> tuple[Kind, Filter] | QueryError:
    """The kind and the filter of a request, or the error to answer with."""
    kind = next((each for each in KINDS if each == query.kind), None)
    if kind is None:
        return QueryError(code=BAD_KIND, detail=f"the kinds are {', '.join(KINDS)}")
    try:
        if type(query.filter) is not dict:
            raise DecodeError("want a map")
        wanted: Filter = FILTERS[kind].codec.read(query.filter)
    except DecodeError as exc:
        return QueryError(code=BAD_FILTER, detail=f"filter of kind {kind}: {exc}")
    return kind, wanted


def page(directory: Directory, query: Query, now: int) -> QueryPage | QueryError:
    """The descriptors that fit, without those that have expired at ``now``."""
    parsed = parse(query)
    if isinstance(parsed, QueryError):
        return parsed
    kind, wanted = parsed
    conditions = Conditions(
        prefix=getattr(wanted, "name_prefix", None),
        equal=tuple(
            (name, value)
            for name in ("region", "method", "overlay_id", "schema")
            if (value := getattr(wanted, name, None)) is not None
        ),
        any_of=() if wanted.tags_any is None else (("tag", wanted.tags_any),),
    )
    limit = MAX_RESULTS if query.limit is None else min(query.limit, MAX_RESULTS)
    matching = directory.matching(kind, conditions, now)
    for _ in range(query.offset or 0):
        if next(matching, None) is None:
            return QueryPage((), more=False)
    found: list[Listed] = []
    size = 0
    for each in matching:
        size += len(each.body)
        if len(found) == limit or (found and size > MAX_RESULT_BYTES):
            return QueryPage(tuple(found), more=True)
        found.append(each)
    return QueryPage(tuple(found), more=False)


def answer(directory: Directory, query: Query, now: int) -> QueryResult:
    """The reply to a request at one time; the same bytes for every reader of the same state."""
    found = page(directory, query, now)
    if isinstance(found, QueryError):
        return QueryResult(ok=False, results=(), more=False, error=found)
    return QueryResult(
        ok=True, results=tuple(cbor.decode(each.body) for each in found.found), more=found.more
    )
