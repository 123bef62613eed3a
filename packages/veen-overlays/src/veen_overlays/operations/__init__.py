"""The operation profiles of spec-3: records, rules and overlays.

``operation`` holds the conventions that all of them share. ``payment``, ``access`` and ``delegation`` declare
the records of paid operations, grants and delegated executions. ``state`` applies them in stream order, with
``grants`` and ``refusal``; ``overlays`` shows the state. ``results`` records what a runner has performed.
"""

from typing import Any, Final

from veen_overlays.fold.overlay import Overlay
from veen_overlays.operations import overlays, results

OVERLAYS: Final[tuple[Overlay[Any], ...]] = (*overlays.OVERLAYS, *results.OVERLAYS)
