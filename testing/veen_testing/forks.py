"""A fork and its ancestor, checked without fsck: signatures, cuts, and the ancestor's heads."""

from __future__ import annotations

from pathlib import Path

from veen_storage.copies.fork_record import check_heads, read_fork, verify_cuts, verify_record
from veen_storage.disk.hub_keys import read_identity
from veen_storage.disk.layout import Layout


def check_fork(root: Path) -> None:
    """Raise unless the record of a fork verifies and its ancestor ends at the cuts."""
    found = read_fork(root)
    assert found is not None, f"{root} is no fork"
    record, lines = found
    ancestor = Layout(root).ancestor(record.old_hub)
    old = read_identity(Layout(ancestor), record.old_hub)
    verify_record(record, read_identity(Layout(root), record.new_hub), old)
    verify_cuts(record, lines)
    check_heads(ancestor, lines)
