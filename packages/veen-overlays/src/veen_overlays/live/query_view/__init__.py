"""The query view: opened recorder events in columns, and the engine that answers queries from them (P11).

``QueryView`` is the folder, ``ViewFollower`` keeps it up to date, ``DuckDbEngine`` answers queries. Needs the
extra ``service`` of veen-overlays.
"""

from veen_overlays.live.query_view.engine import DuckDbEngine
from veen_overlays.live.query_view.feeds import StreamFeed
from veen_overlays.live.query_view.follower import ViewFollower
from veen_overlays.live.query_view.manifest import DamagedViewError
from veen_overlays.live.query_view.opened_entries import EntryOpener, OriginHub
from veen_overlays.live.query_view.origin_log import OriginLogReader
from veen_overlays.live.query_view.view import QueryView

__all__ = [
    "DamagedViewError",
    "DuckDbEngine",
    "EntryOpener",
    "OriginHub",
    "OriginLogReader",
    "QueryView",
    "StreamFeed",
    "ViewFollower",
]
