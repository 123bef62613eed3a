"""The source of a copy of a whole hub: which directory has each label, and where all labels end."""

from __future__ import annotations

from veen_core.ids import Label
from veen_storage.copies.consistent_prefix import Cut, take_cut
from veen_storage.opening.observer import Source


class HubSource:
    """A hub in one directory; ``shards.sharded_source`` extends it to a hub in several."""

    def __init__(self, main: Source) -> None:
        self.main = main
        """Has the identity, the registry, the attachments and the hub log."""

    def of(self, label: Label) -> Source:  # noqa: ARG002 - a hub with several directories needs it
        """Return the source that has a label's entries, with the hub log of the whole hub."""
        return self.main

    def cut(self) -> Cut:
        """Return the end of every label, none of which is before its head in the hub log of the cut."""
        return take_cut(self.main.index)

    def labels(self, after: Label | None = None) -> list[Label]:
        """Return one page of labels in byte order."""
        return self.main.read.labels(after)
