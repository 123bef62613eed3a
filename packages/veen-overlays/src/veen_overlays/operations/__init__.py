"""The operation profiles of spec-3: records, rules and overlays.

``operation`` holds the conventions that all of them share. ``payment``, ``access`` and ``delegation`` declare
the records of paid operations, grants and delegated executions. ``state`` applies them in stream order, with
``grants`` and ``refusal``; ``overlays`` shows the state.

``agreement``, ``publication`` and ``recovery`` each declare the records and the overlay of one profile;
``key_links`` says which keys sign for a party, ``content_root`` hashes published files. ``causality`` shows
which operation led to which.
"""

from typing import Any, Final

from veen_overlays.fold.overlay import Overlay
from veen_overlays.operations import overlays
from veen_overlays.operations.agreement import AGREEMENTS
from veen_overlays.operations.publication import PUBLICATIONS
from veen_overlays.operations.recovery import RECOVERIES

OVERLAYS: Final[tuple[Overlay[Any], ...]] = (*overlays.OVERLAYS, AGREEMENTS, PUBLICATIONS, RECOVERIES)
