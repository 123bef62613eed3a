"""The control part of a sharded hub, with the hub log that joins all parts.

To readers, the hub log of this store is the joined one. The part's own hub log is ``own_hub_log``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veen_core.tlog.tree_head import SignedHead
from veen_storage.disk.layout import Layout
from veen_storage.shards.fence import Fence, PartStore
from veen_storage.shards.joined_hub_log import JoinedHubLog


class ControlStore(PartStore):
    """The open directory of the control part, and the joined hub log."""

    def __init__(self, root: Path, joined: Layout, fence: Fence, **opening: Any) -> None:
        super().__init__(root, fence, **opening)
        self.own_hub_log = self.hub_log
        try:
            self.joined = JoinedHubLog(joined, self.identity)
        except BaseException:
            super().close()
            raise
        self.hub_log = self.joined.reader

    def publish(self, signed: SignedHead) -> None:
        """Make a hub checkpoint of the joined hub log the one that is served; durable when this returns."""
        with self._publishing:
            self.joined.publish(signed)

    def close(self) -> None:
        super().close()
        if hasattr(self, "joined"):
            self.joined.close()
