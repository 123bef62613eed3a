"""The state of bridge/online/log: every exported bundle, by its id (products-spec-1 §4.6, P8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from veen_core import cbor
from veen_core.ids import ClientId, HubId, StreamId
from veen_overlays.bridge.records import Exported
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import FIRST_WRITER, LWW, StampedValue, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import table_of_records

ExportState = Mapping[str, Mapping[bytes, StampedValue | None]]
"""``bundles``: the first record of each bundle. ``heads``: the last record of each chain of bundles."""


def _chain(record: Exported) -> bytes:
    return record.source_hub_id + record.stream_id + record.bridge_id


def _lift(event: Event) -> ExportState:
    record = event.record
    assert isinstance(record, Exported)
    written: StampedValue = event.stamp(0), record.encode()
    # An interrupted bridge may report one bundle twice; the second report does not extend the chain.
    return {"bundles": {bytes(record.bundle_id): written}} | (
        {} if any(event.repeated) else {"heads": {_chain(record): written}}
    )


def exported_bundles(state: ExportState) -> Iterator[Exported]:
    """Every exported bundle, in the order of the audit log."""
    written = [each for each in state.get("bundles", {}).values() if each is not None]
    return (Exported.decode(body) for _stamp, body in sorted(written))


def last_exported(state: ExportState, hub: HubId, stream: StreamId, bridge: ClientId) -> Exported | None:
    """The last bundle of a chain: its id is the next bundle's ``prev_bundle_id`` (P6)."""
    written = state.get("heads", {}).get(hub + stream + bridge)
    return None if written is None else Exported.decode(written[1])


def _view(state: ExportState) -> list[Any]:
    written = [each for each in state.get("bundles", {}).values() if each is not None]
    return [cbor.decode(body) for _stamp, body in sorted(written)]


EXPORTS: Final[Overlay[ExportState]] = Overlay(
    name="bridge.exports",
    title="The bundles that a bridge has exported, in order (AGB0 4.6).",
    schemas=(Exported,),
    monoid=product(bundles=map_of(FIRST_WRITER), heads=map_of(LWW)),
    lift=_lift,
    view=_view,
    keys=lambda record: (bytes(record.bundle_id),) if isinstance(record, Exported) else (),
    table=table_of_records(Exported),
)
