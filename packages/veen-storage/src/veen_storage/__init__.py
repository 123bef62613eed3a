"""What a hub keeps on disk.

The data directory of a hub: journal, chunk files, LMDB indices, peaks, checkpoints,
retention, recovery, fsck, clone and fork. The only package that knows a path.
"""
