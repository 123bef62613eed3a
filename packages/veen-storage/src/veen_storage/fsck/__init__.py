"""fsck: everything re-derived from the files alone, then the index's agreement with it (DESIGN step 5).

Read in this order: ``report`` (what it says), ``files`` and ``entries`` (what lies there, and each entry
alone), ``plan`` (work for processes), ``label`` and ``beside`` (the ordered fold and what must agree with
it), ``derive`` and ``index`` (the index that follows, and the one there is), ``check`` (all of it).
"""

from veen_storage.fsck.check import fsck
from veen_storage.fsck.report import Fault, Level, Progress, Report

__all__ = ["Fault", "Level", "Progress", "Report", "fsck"]
