"""The output of an interrupted replay: ``--resume`` checks the output before it changes anything."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.record.replays.replaying import Verify
from veen_core.errors import VeenError
from veen_core.ids import Label

Position = tuple[str, int]
"""Stream and epoch."""
RANGE_FIELDS: Final = {
    "stream": str,
    "position": int,
    "epoch": int,
    "label": str,
    "from_seq": int,
    "to_seq": int,
    "tree_size": int,
    "mmr_root": str,
}


class BegunReplay:
    """The header of a replay, and the last row of each of its labels."""

    def __init__(self, path: Path, header: object) -> None:
        """Raise ``CommandFailed`` if ``header`` is not the first row of a replay."""
        self._path = path
        self.kinds = Counter[str]()
        """How many rows of each kind there are."""
        self.last: dict[Position, int] = {}
        if not isinstance(header, dict) or not _is_header(header):
            raise no_replay(path, "it does not begin with a row of kind replay")
        self.header: dict[str, Any] = header
        self._next = {(each["stream"], each["epoch"]): each["from_seq"] for each in header["ranges"]}

    def takes(self, row: object, where: str) -> bool:
        """Count a row; return False for the row ``missing``, after which nothing is kept."""
        kind = row.get("kind") if isinstance(row, dict) else None
        if kind == "missing":
            return False
        if kind == "end":
            raise complete(self._path)
        if not isinstance(row, dict) or not isinstance(kind, str):
            raise no_replay(self._path, f"{where} is not a row of a replay")
        position: Any = (row.get("stream"), row.get("epoch"))
        if not all(isinstance(each, str | int) for each in position) or position not in self._next:
            raise no_replay(self._path, f"{where} belongs to no range of the first row")
        if row.get("seq") != self._next[position]:
            raise no_replay(self._path, f"{where} is not entry {self._next[position]} of {position[0]}")
        self.last[position] = self._next[position]
        self._next[position] += 1
        self.kinds[kind] += 1
        return True


def _is_header(header: dict[str, Any]) -> bool:
    ranges = header.get("ranges")
    return (
        header.get("kind") == "replay"
        and isinstance(header.get("hub_id"), str)
        and header.get("verify") in [each.value for each in Verify]
        and isinstance(ranges, list)
        and all(isinstance(each, dict) and _is_range(each) for each in ranges)
    )


def _is_range(found: dict[str, Any]) -> bool:
    if any(type(found.get(name)) is not kind for name, kind in RANGE_FIELDS.items()):
        return False
    try:
        Label.from_hex(found["label"])
    except (ValueError, VeenError):
        return False
    return True


def no_replay(path: Path, why: str) -> CommandFailed:
    """The error for resuming a file or folder that has no replay."""
    return CommandFailed(f"{path} holds no replay to resume: {why}", Exit.USAGE, "replay to a new file")


def complete(path: Path) -> CommandFailed:
    """The error for resuming a replay that has ended."""
    return CommandFailed(f"the replay in {path} is complete", Exit.USAGE, "choose another --out")
