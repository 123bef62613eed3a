"""fsck: everything re-derived from the files alone, then the index's agreement with it (DESIGN step 5).

Read in this order: ``report`` (what it says), ``files`` and ``entries`` (what lies there, and each entry
alone), ``plan`` (work for processes), ``label`` with ``state``, ``checkpoints``, ``beside`` and ``pending``
(the ordered fold, what must agree with it, what waits in the journal), ``derive`` and ``index`` (the index
that follows, and the one there is), ``check`` (all of it).
"""

from veen_storage.fsck.check import fsck
from veen_storage.fsck.report import Fault, Level, Progress, Report

__all__ = ["Fault", "Level", "Progress", "Report", "fsck"]
