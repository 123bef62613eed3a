"""The files of a data directory, and the checks of each kind of file.

directory          registry, identity, keys, fork record
log_files          the files in ``log/``, by label
checkpoint_files   checkpoints with their peaks and index, and anchors
surplus_bytes      what an interrupted write may have left at the end of a file
attachments        every attachment, and the index's record of them
"""
