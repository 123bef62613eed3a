"""Views of live logs: the only part of the package that does IO.

``materializer`` folds one label, ``epochs`` a stream whose label changes with every epoch, ``realm`` and
``policy`` the admin streams of a hub's realm. All of them read through core's ``LogReader``.
``operation_runner`` performs paid operations.
"""

from veen_overlays.live.epochs import Epochs, EpochView
from veen_overlays.live.folded_state import FoldedState
from veen_overlays.live.label import ReadPrefix
from veen_overlays.live.materializer import Materializer
from veen_overlays.live.opening import open_entry
from veen_overlays.live.operation_runner import OperationFailedError, OperationRunner, PendingOperation
from veen_overlays.live.policy import RealmPolicy
from veen_overlays.live.realm import RealmFollower

__all__ = [
    "EpochView",
    "Epochs",
    "FoldedState",
    "Materializer",
    "OperationFailedError",
    "OperationRunner",
    "PendingOperation",
    "ReadPrefix",
    "RealmFollower",
    "RealmPolicy",
    "open_entry",
]
