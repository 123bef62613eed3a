"""The query view: opened recorder events in columns, and the engine that answers queries from them (P13).

``QueryView`` is the folder (``files``), ``ViewFollower`` keeps it up to date (``feed``), ``DuckDbEngine``
answers queries. Needs the extra ``service`` of veen-overlays. Names are imported on first use: veen-spark
reads views without DuckDB.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from veen_overlays.live.query_view.engine import DuckDbEngine
    from veen_overlays.live.query_view.feed.feeds import StreamFeed
    from veen_overlays.live.query_view.feed.follower import ViewFollower
    from veen_overlays.live.query_view.feed.opened_entries import EntryOpener, OriginHub
    from veen_overlays.live.query_view.feed.origin_log import OriginLogReader
    from veen_overlays.live.query_view.files.manifest import DamagedViewError
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

_MODULES: Final = {
    "DamagedViewError": "veen_overlays.live.query_view.files.manifest",
    "DuckDbEngine": "veen_overlays.live.query_view.engine",
    "EntryOpener": "veen_overlays.live.query_view.feed.opened_entries",
    "OriginHub": "veen_overlays.live.query_view.feed.opened_entries",
    "OriginLogReader": "veen_overlays.live.query_view.feed.origin_log",
    "QueryView": "veen_overlays.live.query_view.view",
    "StreamFeed": "veen_overlays.live.query_view.feed.feeds",
    "ViewFollower": "veen_overlays.live.query_view.feed.follower",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
