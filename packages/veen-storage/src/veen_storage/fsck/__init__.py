"""fsck and repair: check a data directory from its files alone, and rebuild what follows from the log.

Read in this order:

report          faults, notes, counters
files           the files of the directory, and the checks of each kind of file
journal_items   the batches of the journal, and how far the log has applied them
entries         each entry by itself, in any process; ``plan`` and ``workers`` share the work
label_fold      the entries of a label in order, by the rules of ``entry_order``
hub_log_fold    the hub log and its heads, against the labels; ``hub_log_notes``: its signed notes
pending         the batches that the index has not applied
derived_index   the index that follows from the log
log_check       all of the log
index_check     the existing index, compared with the derived one
check, repair   the two commands
"""

from veen_storage.fsck.check import fsck
from veen_storage.fsck.repair import RefusedError, RepairReport, rebuild_index, repair
from veen_storage.fsck.report import Fault, FsckLevel, Report

__all__ = [
    "Fault",
    "FsckLevel",
    "RefusedError",
    "RepairReport",
    "Report",
    "fsck",
    "rebuild_index",
    "repair",
]
