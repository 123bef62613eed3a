"""fsck and repair: check a data directory from its files alone, and rebuild what follows from the log.

Read in this order:

report          faults, notes, counters
directory       registry, identity, keys, fork record
log_files       the files in ``log/`` by label; ``journal_items``: the items of the journal
entries         each entry by itself, in any process; ``plan`` and ``workers`` share the work
label_fold      the entries of a label in order, by the rules of ``entry_order``; ``checkpoint_files``
hub_log_fold    the hub log and its heads, against the labels; ``hub_log_notes``: its signed notes
pending         what the journal holds beyond the index
derived_files   summaries, peaks, checkpoint indices, bindings; ``derived_index``: the index that follows
log_check       all of the log
index_check     the existing index, compared with the derived one
attachments     every attachment, and the index's record of them
check, repair   the two commands
"""

from veen_storage.fsck.check import fsck
from veen_storage.fsck.repair import RefusedError, RepairReport, rebuild_index, repair
from veen_storage.fsck.report import Fault, Level, Report

__all__ = [
    "Fault",
    "Level",
    "RefusedError",
    "RepairReport",
    "Report",
    "fsck",
    "rebuild_index",
    "repair",
]
