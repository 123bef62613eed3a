"""Copies labels from the parts of one hub into other directories: file by file, and every byte as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from veen_core.ids import Label
from veen_storage.copies.clone import LogCopier, ReportProgress
from veen_storage.copies.consistent_prefix import Cut, LabelCut, take_cut
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.opening.observer import Source
from veen_storage.read.attachments import Attachments
from veen_storage.shards.sharded_layout import CONTROL, control_label_of


class PartsCopier:
    """Copies labels as they ended when this object was made.

    ``sources`` are the parts of a sharded hub by number; a hub with one shard is its own control part.
    """

    def __init__(self, sources: Mapping[int, Source], progress: ReportProgress, files: Files) -> None:
        self._sources = sources
        self._progress = progress
        self._files = files
        self._control_label = control_label_of(sources[CONTROL].registry.hub_id)
        # The control part last: a token that a message uses is then in the copy too.
        self._owned = {number: self._cut(number) for number in sorted(sources, reverse=True)}

    def _cut(self, number: int) -> Cut:
        """Return the end of every label that a part owns; a shard's copy of the control label is none."""
        cut = take_cut(self._sources[number].index)
        labels = (each for each in cut.labels if number == CONTROL or each.label != self._control_label)
        return Cut(tuple(labels), cut.binding_bytes, None, cut.batch)

    @property
    def labels(self) -> list[LabelCut]:
        """The end of every label of the hub."""
        return [each for cut in self._owned.values() for each in cut.labels]

    def build(self, target: Layout, belongs: Callable[[Label], bool]) -> None:
        """Copy some labels into a new directory, with registry and identity."""
        bindings = b""
        for number, cut in self._owned.items():
            labels = tuple(each for each in cut.labels if belongs(each.label))
            copier = LogCopier(self._sources[number], target, self._progress, self._files)
            copier.copy_labels(labels)
            bindings += copier.bindings(Cut(labels, cut.binding_bytes), whole=False)
        self._files.replace(target.checkpoint_binding, bindings)
        control = self._sources[CONTROL]
        for name, content in control.artifacts().files(control.layout).items():
            self._files.replace(target.root / name, content)
        self._files.replace(target.registry, control.layout.registry.read_bytes())


def copy_attachments(source: Source, target: Layout, files: Files) -> None:
    """Copy all attachments, each checked against its coid; raise if one is lost."""
    copied = Attachments(files, target, source.registry.limits.max_attachment_bytes, None)
    for coid in source.attachments.lost():
        raise source.attachments.missing(coid)
    for coid in source.attachments.coids():
        copied.put(coid, source.attachments.get(coid))
