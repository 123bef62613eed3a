"""The memory map of an LMDB file: its size, and the check that the file was not truncated."""

from __future__ import annotations

from pathlib import Path

import lmdb


def map_size(path: Path, minimum: int) -> int:
    """Return a map size for the environment in ``path``: ``minimum`` doubled until it is twice the file."""
    size, data = minimum, path / "data.mdb"
    on_disk = data.stat().st_size if data.exists() else 0
    while size < 2 * on_disk:
        size *= 2
    return size


def is_truncated(env: lmdb.Environment, path: Path) -> bool:
    """Return whether the file is shorter than its last page.

    The process would be killed by SIGBUS at the first access to a missing page.
    """
    on_disk = (path / "data.mdb").stat().st_size
    return 0 < on_disk < (int(env.info()["last_pgno"]) + 1) * int(env.stat()["psize"])
