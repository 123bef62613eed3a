"""The first copy of a sharded hub for a replica: a directory with one shard (``copies.snapshot``).

All parts are cut between two rounds of the joined hub log. So the copy equals a replica that has
followed the merged journal up to the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from veen_core import cbor
from veen_storage.copies.clone import MAX_CUTS, PrunedMeanwhileError
from veen_storage.copies.consistent_prefix import Cut, HubLogCut, take_cut
from veen_storage.copies.snapshot import Emit, SnapshotSender
from veen_storage.disk.registry import DATA, FORMAT_VERSION, version_text
from veen_storage.errors import StorageError
from veen_storage.opening.observer import Observer, Source
from veen_storage.shards.control_store import ControlStore
from veen_storage.shards.sharded_layout import CONTROL, control_label_of

PartObserver = Observer
"""Reads a part that its process has open."""


@dataclass(frozen=True, slots=True)
class MergedCut:
    """All labels of a sharded hub at one place of its merged journal."""

    batch: int
    parts: Mapping[int, Cut]
    """The labels that each part owns."""
    hub_log: HubLogCut | None


def send_merged_snapshot(sources: Mapping[int, Source], cut_now: Callable[[], MergedCut], emit: Emit) -> None:
    """Send a sharded hub, part by part; ``cut_now`` makes a cut between two rounds."""
    senders = {number: SnapshotSender(source, emit) for number, source in sources.items()}
    main = senders[CONTROL]
    for _attempt in range(MAX_CUTS):
        cut = cut_now()
        main.begin(cut.batch)
        try:
            for number, sender in senders.items():
                sender.copy_log(cut.parts[number], whole=False)
            if cut.hub_log is not None:
                main.copy_hub_log(cut.hub_log)
        except PrunedMeanwhileError:
            main.forget_log()
            continue
        _send_rest(sources[CONTROL], emit)
        return
    raise StorageError(f"chunks were pruned faster than they could be sent, {MAX_CUTS} times")


def _send_rest(control: Source, emit: Emit) -> None:
    layout = control.layout
    registry = layout.registry.read_bytes()
    found = control.artifacts().files(layout)
    found[layout.registry.name] = registry
    found[layout.version.name] = version_text(DATA, FORMAT_VERSION, registry)  # last
    for name, content in found.items():
        emit(cbor.encode(["file", name, content]))
    emit(cbor.encode(["end"]))


def cut_parts(store: ControlStore, sources: Mapping[int, Source]) -> MergedCut:
    """Cut all parts, and continue the merged journal up to there; call this between two rounds."""
    control_label = control_label_of(store.registry.hub_id)
    cuts: dict[int, Cut] = {}
    for number in sorted(sources, reverse=True):  # the control part last: it has every token that is used
        cut = take_cut(sources[number].index)
        owned = tuple(each for each in cut.labels if (each.label == control_label) == (number == CONTROL))
        cuts[number] = Cut(owned, cut.binding_bytes, None, cut.batch)
    batch = store.order_for_copy({number: cut.batch for number, cut in cuts.items()})
    return MergedCut(batch, cuts, store.joined.cut())
