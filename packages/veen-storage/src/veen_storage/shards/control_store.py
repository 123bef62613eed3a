"""The control part of a sharded hub, with the hub log that joins all parts.

To readers, the hub log of this store is the joined one. The part's own hub log is ``own_hub_log``. The store
locks the hub's whole directory, and not only its part: it is the coordinator's.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from veen_core.tlog.tree_head import SignedHead
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.shards.fence import Fence, PartStore, raise_fence
from veen_storage.shards.joined_hub_log import JoinedHubLog
from veen_storage.shards.sharded_layout import CONTROL, ShardedLayout


class ControlStore(PartStore):
    """The open directory of the control part, and the joined hub log."""

    def __init__(self, layout: ShardedLayout, files: Files, **opening: Any) -> None:
        path = layout.fence(CONTROL)
        with ExitStack() as stack:
            lock = DirectoryLock(Layout(layout.root))
            stack.callback(lock.release)
            super().__init__(layout.part(CONTROL).root, Fence(path, raise_fence(path, files)), **opening)
            stack.callback(super().close)
            self.own_hub_log = self.hub_log
            self.joined = JoinedHubLog(layout.joined, self.identity, files)
            stack.callback(self.joined.close)
            self.hub_log = self.joined.reader
            self._opened = stack.pop_all()

    def publish(self, signed: SignedHead) -> None:
        """Make a hub checkpoint of the joined hub log the one that is served; durable when this returns."""
        with self._publishing:
            self.joined.publish(signed)

    def close(self) -> None:
        """Close the joined hub log and the part, and release the directory. Safe to call twice."""
        self._opened.close()
