"""What a live fold has written: Parquet parts, and commits that say which of them count.

    target/commits/<batch>.json    the parts that make up the state after this batch; the commit point
    target/states/<part>/          Parquet: labels and their states
    target/keys/<part>/            Parquet: keys and the first stream_seq to have each (ADR 0011)
    target/checkpoint/             Spark's own: how far the stream was read

1. The parts of a batch are written under names of their own, and made durable; nobody looks at them yet.
2. The commit is written beside its place, made durable, and renamed into it: that is the commit point.
3. What neither this commit nor the one before names is removed.

A batch that is done again after a crash finds its commit, and does nothing; or finds none, and its leftovers
are removed by the next one. Parts are joined, ``TIER`` of a level at a time, so that there are few of them.
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

TIER: Final = 8
Kind = Literal["states", "keys"]
KINDS: Final[tuple[Kind, ...]] = ("states", "keys")


@dataclass(frozen=True, slots=True)
class Part:
    """A folder of Parquet files; ``level``: how often its rows were joined with others'."""

    name: str
    level: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """After ``batch``, these parts are the state of the overlay with this ``class_id``."""

    batch: int
    overlay: str
    class_id: str
    states: tuple[Part, ...] = ()
    keys: tuple[Part, ...] = ()

    def parts(self, kind: Kind) -> tuple[Part, ...]:
        return self.states if kind == "states" else self.keys


@dataclass(frozen=True, slots=True)
class Target:
    """A folder that the driver and all executors can reach."""

    root: Path
    kept: int = field(default=2, kw_only=True)
    """Commits whose parts stay: whoever reads the last but one is not disturbed."""

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    def path(self, kind: Kind, part: Part) -> str:
        return str(self.root / kind / part.name)

    def new_part(self, batch: int, level: int = 0) -> Part:
        """A name that no other attempt at this batch has."""
        return Part(f"{batch:012}-{uuid.uuid4().hex}", level)

    def make_durable(self, kind: Kind, part: Part) -> None:
        """Step 1 ends: a commit that outlives a power cut must not name rows that did not."""
        folder = Path(self.path(kind, part))
        for path in (*folder.rglob("*"), folder, folder.parent):
            _sync(path)

    def _commits(self) -> list[Path]:
        return sorted((self.root / "commits").glob("*.json"))

    def last(self) -> Commit | None:
        """The state as it is; None if nothing was committed."""
        files = self._commits()
        return _read(files[-1]) if files else None

    def commit(self, commit: Commit) -> None:
        """Steps 2 and 3."""
        folder = self.root / "commits"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{commit.batch:012}.json"
        draft = folder / f".{name}.{uuid.uuid4().hex}"
        with draft.open("w", encoding="utf-8") as file:
            json.dump(asdict(commit), file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(folder / name)  # commit point
        _sync(folder)
        self._sweep()

    def _sweep(self) -> None:
        files = self._commits()
        for old in files[: -self.kept]:
            old.unlink()
        counting = [_read(file) for file in files[-self.kept :]]
        for kind in KINDS:
            named = {part.name for commit in counting for part in commit.parts(kind)}
            for folder in (self.root / kind).glob("*"):
                if folder.name not in named:
                    shutil.rmtree(folder, ignore_errors=True)


def full_tier(parts: Iterable[Part]) -> list[Part]:
    """The parts of the lowest level that has ``TIER`` of them; they are to become one."""
    levels: dict[int, list[Part]] = {}
    for part in parts:
        levels.setdefault(part.level, []).append(part)
    full = [level for level, held in levels.items() if len(held) >= TIER]
    return levels[min(full)] if full else []


def _read(file: Path) -> Commit:
    try:
        item: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        for kind in KINDS:
            item[kind] = tuple(Part(**part) for part in item[kind])
        return Commit(**item)
    except (ValueError, TypeError, KeyError) as exc:
        raise StateError(
            f"{file} is no commit of a live fold ({exc}): restore it, or remove its folder and fold anew"
        ) from None


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
