"""The drivers that follow a log and keep a view: the only part of the package that waits for anything."""

from veen_overlays.live.materializer import Answer, Materializer
from veen_overlays.live.opening import open_entry

__all__ = ["Answer", "Materializer", "open_entry"]
