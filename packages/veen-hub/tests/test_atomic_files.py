"""``replace_file`` and ``create_file``: modes, and no trace of a failed write."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from veen_core.errors import StateError
from veen_hub.client import create_file, replace_file

WRITERS = {"replace": replace_file, "create": create_file}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_only_the_owner_reads_a_file_unless_it_is_shared(
    tmp_path: Path, write: Callable[..., object]
) -> None:
    before = os.umask(0o022)
    try:
        write(tmp_path / "secret", b"x")
        write(tmp_path / "shared", b"x", shared=True)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("secret", "shared")]
    assert modes == [0o600, 0o644]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_write_that_fails_names_the_file_and_leaves_nothing(
    tmp_path: Path, write: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(StateError, match=r"file.*cannot be written: No space left"):
        write(tmp_path / "file", b"x")
    assert list(tmp_path.iterdir()) == []
