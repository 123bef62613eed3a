"""The state of bridge/offline/log: imported bundles and failed imports (products-spec-1 §4.6, P8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from veen_core import cbor
from veen_core.ids import BundleId, ClientId, HubId, StreamId
from veen_overlays.bridge.records import Imported, ImportFailed, ImportGap, ImportMapping
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import FIRST_WRITER, LWW, SUM, Monoid, StampedValue, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, Table

MAX_LISTED_FAILURES: Final = 64
"""Failures that a state lists, the latest ones; ``failed`` counts all of them."""

ImportState = Mapping[str, Any]
"""``bundles``: the first report of each bundle. ``repeated``: the number of further reports of a bundle.
``heads``: the last bundle of each chain. ``gaps``: bundles imported after an allowed gap. ``mappings``: the
latest report of each source stream's import stream. ``failed``: the number of failures. ``failures``: the
latest of them, encoded."""

_LATEST: Final[Monoid[tuple[bytes, ...]]] = Monoid(
    (), lambda a, b: (a + b)[-MAX_LISTED_FAILURES:], list, tuple
)


def _lift(event: Event) -> ImportState:
    match event.record:
        case ImportFailed() as failure:
            return {"failed": 1, "failures": (failure.encode(),)}
        case ImportGap() as gap:
            return {"gaps": {bytes(gap.bundle_id): (event.stamp(0), gap.encode())}}
        case ImportMapping() as mapping:
            origin = mapping.source_hub_id + mapping.source_stream_id
            return {"mappings": {origin: (event.stamp(0), mapping.encode())}}
        case Imported() as bundle:
            written: StampedValue = event.stamp(0), bundle.encode()
            if any(event.repeated):
                return {
                    "bundles": {bytes(bundle.bundle_id): written},
                    "repeated": {bytes(bundle.bundle_id): 1},
                }
            chain = bundle.source_hub_id + bundle.source_stream_id + bundle.source_bridge_id
            return {"bundles": {bytes(bundle.bundle_id): written}, "heads": {chain: written}}
    raise AssertionError(event.record)


def imported_bundles(state: ImportState) -> Iterator[Imported]:
    """Every imported bundle, in the order of the audit log."""
    written = [each for each in state.get("bundles", {}).values() if each is not None]
    return (Imported.decode(body) for _stamp, body in sorted(written))


def imported_bundle(state: ImportState, bundle: BundleId) -> Imported | None:
    """The report of one bundle, or None if it was not imported."""
    written = state.get("bundles", {}).get(bytes(bundle))
    return None if written is None else Imported.decode(written[1])


def last_imported(
    state: ImportState, hub: HubId, stream: StreamId, source_bridge: ClientId
) -> Imported | None:
    """The last imported bundle of a chain: the next one must name it as previous (P6)."""
    written = state.get("heads", {}).get(hub + stream + source_bridge)
    return None if written is None else Imported.decode(written[1])


def repeated_imports(state: ImportState) -> Mapping[BundleId, int]:
    """How often each bundle was reported as imported again; empty if every bundle was imported once (4.7)."""
    return {BundleId(bundle): times for bundle, times in state.get("repeated", {}).items()}


def allowed_gap(state: ImportState, bundle: BundleId) -> ImportGap | None:
    """The report of an import that began although an earlier bundle was missing; None without a report."""
    written = state.get("gaps", {}).get(bytes(bundle))
    return None if written is None else ImportGap.decode(written[1])


def reported_mappings(state: ImportState) -> Iterator[ImportMapping]:
    """The latest mapping of each source stream; a mapping does not prove that an event was imported."""
    found = state.get("mappings", {})
    return (ImportMapping.decode(found[origin][1]) for origin in sorted(found) if found[origin] is not None)


def _view(state: ImportState) -> dict[str, Any]:
    written = [each for each in state.get("bundles", {}).values() if each is not None]
    repeated = state.get("repeated", {})
    return {
        "bundles": [cbor.decode(body) for _stamp, body in sorted(written)],
        "repeated": {bundle: repeated[bundle] for bundle in sorted(repeated)},
        "gaps": [cbor.decode(state["gaps"][key][1]) for key in sorted(state.get("gaps", {}))],
        "mappings": [cbor.decode(each.encode()) for each in reported_mappings(state)],
        "failed": state.get("failed", 0),
        "failures": [cbor.decode(body) for body in state.get("failures", ())],
    }


def _rows(view: Any) -> Iterator[tuple[Any, ...]]:
    for each in view["bundles"]:
        yield tuple(each.get(column) for column in _COLUMNS)


_COLUMNS: Final = {
    "bundle_id": ColumnType.BYTES,
    "source_hub_id": ColumnType.BYTES,
    "source_label": ColumnType.BYTES,
    "from_seq": ColumnType.UINT,
    "to_seq": ColumnType.UINT,
    "events": ColumnType.UINT,
    "mode": ColumnType.TEXT,
    "skipped_from": ColumnType.UINT,
    "import_time": ColumnType.UINT,
}

IMPORTS: Final[Overlay[ImportState]] = Overlay(
    name="bridge.imports",
    title="The bundles that a bridge has imported, and the imports that failed (AGB0 4.6).",
    schemas=(Imported, ImportFailed, ImportGap, ImportMapping),
    monoid=product(
        bundles=map_of(FIRST_WRITER),
        repeated=map_of(SUM),
        heads=map_of(LWW),
        gaps=map_of(FIRST_WRITER),
        mappings=map_of(LWW),
        failed=SUM,
        failures=_LATEST,
    ),
    lift=_lift,
    view=_view,
    keys=lambda record: (bytes(record.bundle_id),) if isinstance(record, Imported) else (),
    table=Table(_COLUMNS, _rows),
)
