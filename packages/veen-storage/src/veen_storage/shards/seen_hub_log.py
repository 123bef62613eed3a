"""The newest hub checkpoint that a shard has recorded, durably, before the hub publishes it.

The record is in the shard's ``views/hub``. A joined hub log from an older copy does not continue it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from veen_storage.index.view_store import ViewStore
from veen_storage.read.hub_log import StoredHubLog

_KEY: Final = b"joined hub log"
_ROW: Final = struct.Struct(">Q32s")


class SeenHubLog(NamedTuple):
    """Size and root of the hub log at a hub checkpoint; ``NOTHING_SEEN`` before the first one."""

    size: int
    root: bytes

    def is_continued_by(self, log: StoredHubLog) -> bool:
        return not self.size or (self.size <= log.size and log.root_at(self.size) == self.root)


NOTHING_SEEN: Final = SeenHubLog(0, b"")


def read_seen(state: ViewStore) -> SeenHubLog:
    row = state.get(_KEY)
    return SeenHubLog(*_ROW.unpack(row)) if row is not None else NOTHING_SEEN


def write_seen(state: ViewStore, seen: SeenHubLog) -> None:
    """Record a hub checkpoint; durable when this returns."""
    state.write({_KEY: _ROW.pack(*seen)})
