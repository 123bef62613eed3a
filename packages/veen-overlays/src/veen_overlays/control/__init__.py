"""The control plane of a realm (spec-2): primary hubs, revocations, label classes, schema names.

``records`` declares the four kinds of record and the streams that carry them, ``state`` folds each stream,
``policy`` joins the folded states into the view that a hub enforces, ``admission`` is the hub's interface to
that view.
"""

from veen_overlays.control.admission import ViewPolicy
from veen_overlays.control.policy import Level, PolicyView
from veen_overlays.control.state import AUTHORITIES, LABEL_CLASSES, REVOCATIONS, SCHEMAS

__all__ = ["OVERLAYS", "Level", "PolicyView", "ViewPolicy"]

OVERLAYS = (AUTHORITIES, REVOCATIONS, LABEL_CLASSES, SCHEMAS)
