"""The origins of imported events: which positions of which source label, and their tree (J1, K2, P7).

The events of one source label are summarised as *runs*: consecutive source positions of one bundle, in the
order of the import stream. A complete bundle is one run, whatever its length. A run has the hashes of the
fewest aligned subtrees that cover its leaves (as a consistency proof has, RESOLUTIONS B11), so the root after
it can be computed and compared with one that the source hub signed: that proves every event of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from veen_core.hashing import u64be
from veen_core.ids import HubId, Label, LeafHash, StreamSeq
from veen_core.mmr import Mmr, node_hash, subtrees
from veen_overlays.bridge.records import EnvelopedEvent, ImportedEvent, origin_of
from veen_overlays.fold.event import Event, IgnoredMessage, Message
from veen_overlays.fold.monoid import Monoid, map_of
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, Table
from veen_overlays.schema.record import Record


class OriginRun(NamedTuple):
    """Consecutive source positions of one bundle, imported in order without another event between them."""

    bundle_id: bytes
    from_seq: int
    to_seq: int
    tiles: tuple[bytes, ...]
    """The hashes of ``subtrees(from_seq - 1, to_seq)``, left to right."""
    last_root: bytes
    """The root in the receipt of the last event."""
    from_ts: int
    to_ts: int
    """hub_ts of the first and the last event at the source."""

    def appended_to(self, tree: Mmr) -> Mmr:
        """The tree of the source label after this run, from the tree of ``from_seq - 1`` entries."""
        grown = tree.copy()
        for (height, _), tile in zip(subtrees(self.from_seq - 1, self.to_seq), self.tiles, strict=True):
            grown.append_subtree(height, tile)
        return grown


Runs = tuple[OriginRun, ...]
OriginState = Mapping[bytes, Runs]
"""The runs of each source label, by ``source_hub_id || source_label``, in the order of the import stream."""


def _joined(a: OriginRun, b: OriginRun) -> OriginRun:
    """Join two consecutive runs; two neighbouring subtrees become their parent."""
    stack: list[tuple[int, int, bytes]] = []
    for run in (a, b):
        for (height, index), tile in zip(subtrees(run.from_seq - 1, run.to_seq), run.tiles, strict=True):
            node = height, index, tile
            while stack and stack[-1][0] == node[0] and stack[-1][1] == node[1] - 1 and node[1] & 1:
                left = stack.pop()
                node = node[0] + 1, node[1] >> 1, bytes(node_hash(left[2], node[2]))
            stack.append(node)
    tiles = tuple(node[2] for node in stack)
    return OriginRun(a.bundle_id, a.from_seq, b.to_seq, tiles, b.last_root, a.from_ts, b.to_ts)


def _concatenated(a: Runs, b: Runs) -> Runs:
    if not a or not b:
        return a or b
    if (b[0].bundle_id, b[0].from_seq) != (a[-1].bundle_id, a[-1].to_seq + 1):
        return a + b
    return (*a[:-1], _joined(a[-1], b[0]), *b[1:])


_RUNS: Final[Monoid[Runs]] = Monoid(
    (),
    _concatenated,
    lambda runs: [[*run[:3], list(run.tiles), *run[4:]] for run in runs],
    lambda item: tuple(OriginRun._make([*run[:3], tuple(run[3]), *run[4:]]) for run in item),
)


def source_key(hub: HubId, label: Label) -> bytes:
    """The key of a source label in an ``OriginState``."""
    return hub + label


def position_key(hub: HubId, label: Label, seq: StreamSeq) -> bytes:
    """The key of an event by its position at the source; ``first_use`` finds the import of the event."""
    return b"at" + hub + label + u64be(seq)


def origin_key(leaf: LeafHash) -> bytes:
    """The key of an event by its original msg_id; ``first_use`` finds the import of the event."""
    return b"origin" + leaf


def runs_of(state: OriginState, hub: HubId, label: Label) -> Runs:
    """The imported runs of a source label."""
    return state.get(source_key(hub, label), ())


def sources(state: OriginState) -> Iterator[tuple[HubId, Label]]:
    """The source labels that events were imported from."""
    return ((HubId(key[:32]), Label(key[32:])) for key in sorted(state))


def event_of(message: Message) -> ImportedEvent | None:
    """The imported event that a message carries, or None."""
    event = ORIGINS.decode(message)
    return None if isinstance(event, IgnoredMessage) else _imported(event.record)


def add_event(runs: list[OriginRun], event: ImportedEvent) -> None:
    """Add an event to the runs of its source label."""
    last = tuple(runs[-1:])
    runs[-1:] = _concatenated(last, (_run(event),))


def _imported(record: Record) -> ImportedEvent:
    if isinstance(record, EnvelopedEvent):
        return record.event
    assert isinstance(record, ImportedEvent)
    return record


def _run(event: ImportedEvent) -> OriginRun:
    receipt = origin_of(event)
    seq, ts = receipt.stream_seq, receipt.hub_ts
    leaf, root = bytes(receipt.leaf_hash), bytes(receipt.mmr_root)
    return OriginRun(bytes(event.bundle_id), seq, seq, (leaf,), root, ts, ts)


def _lift(event: Event) -> OriginState:
    imported = _imported(event.record)
    return {source_key(imported.source_hub_id, imported.source_label): (_run(imported),)}


def _keys(record: Record) -> tuple[bytes, ...]:
    if not isinstance(record, ImportedEvent | EnvelopedEvent):
        return ()
    event = _imported(record)
    at = position_key(event.source_hub_id, event.source_label, event.source_stream_seq)
    return at, origin_key(origin_of(event).leaf_hash)


def _view(state: OriginState) -> list[dict[str, Any]]:
    return [
        {
            "source_hub_id": key[:32],
            "source_label": key[32:],
            "runs": [
                [run.bundle_id, run.from_seq, run.to_seq, run.last_root, run.from_ts, run.to_ts]
                for run in state[key]
            ],
        }
        for key in sorted(state)
    ]


def _rows(view: Any) -> Iterator[tuple[Any, ...]]:
    for source in view:
        for run in source["runs"]:
            yield source["source_hub_id"], source["source_label"], *run


ORIGINS: Final[Overlay[OriginState]] = Overlay(
    name="bridge.origins",
    title="The origins of the events of an import stream: runs of source positions (AGB0 J1).",
    schemas=(ImportedEvent, EnvelopedEvent),
    monoid=map_of(_RUNS),
    lift=_lift,
    view=_view,
    keys=_keys,
    table=Table(
        {
            "source_hub_id": ColumnType.BYTES,
            "source_label": ColumnType.BYTES,
            "bundle_id": ColumnType.BYTES,
            "from_seq": ColumnType.UINT,
            "to_seq": ColumnType.UINT,
            "last_root": ColumnType.BYTES,
            "from_ts": ColumnType.UINT,
            "to_ts": ColumnType.UINT,
        },
        _rows,
    ),
)
