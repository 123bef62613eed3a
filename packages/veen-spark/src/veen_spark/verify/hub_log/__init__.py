"""The hub log of a data directory, a clone or an export of a whole hub, against its labels (RESOLUTIONS P1).

check        all hub logs under the paths, and their reports
folder       the files of one hub log: notes, manifest, and the entries split into parts
entries      one task: the entries of one part                       → subtrees, or heads
tree         the tree over the entries, against the hub checkpoints
heads        the heads, against the labels that were verified
placement    which task gets which head: the one that reads the part of the label with that entry
comparison   one task: heads against the RECEIPTs of parts of labels → PartHeads

Heads move from the tasks that read the hub log to the tasks that read the labels by a shuffle
(``tasks.TaskExchange``). The driver gets O(log n) hashes for each part of a hub log, one summary for each
part of a label, and one head for each missing label.
"""
