"""The folder of a live fold: Parquet parts, and commits that name the parts that make up the state.

    folder/commits/<batch>.json    the parts of the state after this batch
    folder/states/<part>/          Parquet: labels and their states
    folder/keys/<part>/            Parquet: deduplication keys, with the first stream_seq of each (ADR 0011)
    folder/checkpoint/             Spark's own checkpoint: how far the stream was read

1. The parts of a batch are written under unique names and made durable; no reader uses them yet.
2. The commit file is written under a temporary name, made durable, and renamed: this is the commit point.
3. Parts that neither this commit nor the previous one names are removed.

A batch that is repeated after a crash finds its commit and changes nothing, or finds none and is processed
again; the next commit removes the leftovers. When ``PARTS_PER_LEVEL`` parts of one level exist, they are
joined into one part of the next level, so that their number stays small.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from veen_core.errors import StateError
from veen_hub.client import replace_file

PARTS_PER_LEVEL: Final = 8
Kind = Literal["states", "keys"]
KINDS: Final[tuple[Kind, ...]] = ("states", "keys")


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """A folder of Parquet files; ``level`` counts how often it was joined."""

    name: str
    level: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """The parts that make up the state after ``batch``, for the overlay with this ``class_id``."""

    batch: int
    overlay: str
    class_id: str
    states: tuple[ParquetPart, ...] = ()
    keys: tuple[ParquetPart, ...] = ()

    def parts(self, kind: Kind) -> tuple[ParquetPart, ...]:
        return self.states if kind == "states" else self.keys


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The folder of a live fold; the driver and all executors must reach it under the same path."""

    root: Path
    kept: int = field(default=2, kw_only=True)
    """Number of commits whose parts are kept, so that a reader of the previous commit is not disturbed."""

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    def path(self, kind: Kind, part: ParquetPart) -> str:
        return str(self.root / kind / part.name)

    def new_part(self, batch: int, level: int = 0) -> ParquetPart:
        """Return a part with a unique name, so that a repeated batch does not overwrite it."""
        return ParquetPart(f"{batch:012}-{uuid.uuid4().hex}", level)

    def make_durable(self, kind: Kind, part: ParquetPart) -> None:
        """Sync a part, so that a durable commit never names rows that a power loss removed (step 1)."""
        folder = Path(self.path(kind, part))
        for path in (*folder.rglob("*"), folder, folder.parent):
            _sync(path)

    def _commits(self) -> list[Path]:
        return sorted((self.root / "commits").glob("*.json"))

    def last(self) -> Commit | None:
        """Return the last commit, or None."""
        files = self._commits()
        return _read(files[-1]) if files else None

    def commit(self, commit: Commit) -> None:
        """Write a commit and remove unused parts (steps 2 and 3)."""
        folder = self.root / "commits"
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(asdict(commit)).encode()
        replace_file(folder / f"{commit.batch:012}.json", content, shared=True)  # commit point
        self._sweep()

    def _sweep(self) -> None:
        files = self._commits()
        for old in files[: -self.kept]:
            old.unlink()
        kept_commits = [_read(file) for file in files[-self.kept :]]
        for kind in KINDS:
            named = {part.name for commit in kept_commits for part in commit.parts(kind)}
            for folder in (self.root / kind).glob("*"):
                if folder.name not in named:
                    shutil.rmtree(folder, ignore_errors=True)


def full_level(parts: Iterable[ParquetPart]) -> list[ParquetPart]:
    """Return the parts of the lowest full level, which are to be joined; empty if no level is full."""
    levels: dict[int, list[ParquetPart]] = {}
    for part in parts:
        levels.setdefault(part.level, []).append(part)
    full = [level for level, of_level in levels.items() if len(of_level) >= PARTS_PER_LEVEL]
    return levels[min(full)] if full else []


def _read(file: Path) -> Commit:
    try:
        item: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        for kind in KINDS:
            item[kind] = tuple(ParquetPart(**part) for part in item[kind])
        return Commit(**item)
    except (ValueError, TypeError, KeyError) as exc:
        raise StateError(
            f"{file} is not a commit of a live fold ({exc})",
            action="restore the file, or remove the whole folder and start the live fold again",
        ) from None


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
