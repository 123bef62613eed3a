"""The operation profiles of spec-3: each module declares one profile, its records and its overlays.

``operation`` holds the conventions that all of them share.
"""

from typing import Any, Final

from veen_overlays.fold.overlay import Overlay

OVERLAYS: Final[tuple[Overlay[Any], ...]] = ()
