"""The operation profiles of spec-3: records, rules and overlays.

``operation`` holds the conventions that all of them share. ``payment``, ``access`` and ``delegation`` declare
the records of paid operations, grants and delegated executions. ``state`` applies them in stream order, with
``grants`` and ``refusal``; ``overlays`` shows the state. ``results`` records what a runner has performed.

``agreement``, ``publication`` and ``recovery`` each declare the records and the overlay of one profile;
``key_links`` says which keys sign for a party, ``frequent_record`` folds faster. ``content_root`` hashes
published files, ``publication_evidence`` proves a publication. ``causality`` shows which operation led to
which.
"""

from typing import Any, Final

from veen_overlays.fold.overlay import Overlay
from veen_overlays.operations import overlays, results
from veen_overlays.operations.agreement import AGREEMENTS
from veen_overlays.operations.publication import PUBLICATIONS
from veen_overlays.operations.recovery import RECOVERIES

OVERLAYS: Final[tuple[Overlay[Any], ...]] = (
    *overlays.OVERLAYS,
    *results.OVERLAYS,
    AGREEMENTS,
    PUBLICATIONS,
    RECOVERIES,
)
