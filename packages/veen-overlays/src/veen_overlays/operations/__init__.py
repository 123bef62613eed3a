"""The operation profiles of spec-3: each module declares one profile, its records and its overlays.

``operation`` holds the conventions that all of them share.
"""

from typing import Any, Final

from veen_overlays.fold.overlay import Overlay
from veen_overlays.operations.agreement import AGREEMENTS
from veen_overlays.operations.publication import PUBLICATIONS
from veen_overlays.operations.recovery import RECOVERIES

OVERLAYS: Final[tuple[Overlay[Any], ...]] = (AGREEMENTS, PUBLICATIONS, RECOVERIES)
