"""Where a replay is written: stdout, a file of JSON lines, or a folder of Parquet files.

The first line (or ``replay.json``) says which ranges are replayed, the last line (or ``end.json``) how many
rows there are: a reader notices a replay that is not complete. A replay that was interrupted continues after
the last row that was written whole.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import click

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import json_text
from veen_cli.record.replays.resumed_replay import BegunReplay, Position, complete, no_replay
from veen_hub.client import replace_file

PART_ROWS: Final = 10_000
"""Rows per Parquet file."""
TEXT_COLUMNS: Final = (
    "kind",
    "stream",
    "leaf_hash",
    "receipt",
    "client_id",
    "subject_id",
    "principal_id",
    "event_type",
    "origin",
    "proof",
    "proved_root",
    "why",
    "schema",
)
UINT_COLUMNS: Final = ("epoch", "seq", "hub_commit_time", "event_time", "proved_at")


class ReplaySink(Protocol):
    """Takes the rows of a replay."""

    kinds: Counter[str]
    """How many rows of each kind were written, those of an earlier run included."""

    def resume(self, header: dict[str, Any] | None) -> tuple[dict[str, Any], dict[Position, int]]:
        """Begin with ``header``; with None, return the header and the last rows of the earlier run."""

    def write(self, row: dict[str, Any]) -> None: ...
    def finish(self, end: dict[str, Any]) -> None: ...
    def fail(self, row: dict[str, Any]) -> None:
        """Write the row that says what is missing; a resumed replay removes it again."""


class LinesOnStdout:
    """Prints JSON lines; cannot be resumed."""

    def __init__(self) -> None:
        self.kinds = Counter[str]()

    def resume(self, header: dict[str, Any] | None) -> tuple[dict[str, Any], dict[Position, int]]:
        if header is None:
            raise click.UsageError("--resume continues a file: give --out.")
        click.echo(json_text(header))
        return header, {}

    def write(self, row: dict[str, Any]) -> None:
        self.kinds[row["kind"]] += 1
        click.echo(json_text(row))

    def finish(self, end: dict[str, Any]) -> None:
        click.echo(json_text(end))

    fail = finish


class LinesInFile:
    """Writes JSON lines to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self.kinds = Counter[str]()

    def resume(self, header: dict[str, Any] | None) -> tuple[dict[str, Any], dict[Position, int]]:
        if header is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            try:
                self._fd = os.open(self._path, flags, 0o600)
            except FileExistsError:
                raise already_there(self._path) from None
            self._append(header)
            return header, {}
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        begun, whole = None, 0
        for row, end in _lines(self._path):
            if begun is None:
                begun = BegunReplay(self._path, row)
            elif not begun.takes(row, f"the line that ends at byte {end}"):
                break
            whole = end
        if begun is None:
            raise no_replay(self._path, "it has no whole line")
        self.kinds = begun.kinds
        os.ftruncate(self._fd, whole)  # the last line may be cut
        os.lseek(self._fd, 0, os.SEEK_END)
        return begun.header, begun.last

    def write(self, row: dict[str, Any]) -> None:
        self.kinds[row["kind"]] += 1
        self._append(row)

    def _append(self, row: dict[str, Any]) -> None:
        data = (json.dumps(row, ensure_ascii=False) + "\n").encode()
        while data:
            data = data[os.write(self._fd, data) :]

    def finish(self, end: dict[str, Any]) -> None:
        self._append(end)
        os.fsync(self._fd)
        os.close(self._fd)

    fail = finish


def _lines(path: Path) -> Iterator[tuple[object, int]]:
    """Yield each whole line, and where it ends."""
    end = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            end += len(line)
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise no_replay(path, f"the line that ends at byte {end} is not JSON") from None
            yield row, end


def already_there(path: Path) -> CommandFailed:
    """The error for an output that exists."""
    return CommandFailed(f"{path} exists", Exit.USAGE, "choose another --out, or continue it with --resume")


class ParquetFolder:
    """Writes Parquet files of ``PART_ROWS`` rows; each file appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415 - an optional dependency
            import pyarrow.parquet as pq  # noqa: PLC0415
        except ImportError:
            raise CommandFailed(
                "--format parquet needs pyarrow, which is not installed",
                Exit.USAGE,
                "run `pip install 'veen-overlays[service]'`, or use --format jsonl",
            ) from None
        self._pa, self._pq, self._folder = pa, pq, folder
        self.kinds = Counter[str]()
        self._rows: list[dict[str, Any]] = []
        self._parts = 0
        fields = [(name, pa.string()) for name in TEXT_COLUMNS]
        fields += [(name, pa.uint64()) for name in UINT_COLUMNS]
        fields += [("attributed", pa.bool_()), ("payload", pa.string()), ("migration", pa.string())]
        self._schema = pa.schema(fields)

    def resume(self, header: dict[str, Any] | None) -> tuple[dict[str, Any], dict[Position, int]]:
        head = self._folder / "replay.json"
        if header is not None:
            if self._folder.exists() and any(self._folder.iterdir()):
                raise already_there(self._folder)
            replace_file(head, json_text(header).encode())
            return header, {}
        if (self._folder / "end.json").exists():
            raise complete(self._folder)
        try:
            begun = BegunReplay(self._folder, json.loads(head.read_bytes()))
        except (ValueError, RecursionError, FileNotFoundError):
            raise no_replay(self._folder, "replay.json is missing, or is not JSON") from None
        for path in sorted(self._folder.glob("part-*.parquet")):
            for row in self._rows_of(path):
                begun.takes(row, path.name)
            self._parts += 1
        self.kinds = begun.kinds
        (self._folder / "missing.json").unlink(missing_ok=True)
        return begun.header, begun.last

    def _rows_of(self, path: Path) -> list[Any]:
        try:
            table = self._pq.read_table(path, columns=["stream", "epoch", "seq", "kind"])
        except self._pa.ArrowException:
            raise no_replay(self._folder, f"{path.name} is not Parquet") from None
        rows: list[Any] = table.to_pylist()
        return rows

    def write(self, row: dict[str, Any]) -> None:
        self.kinds[row["kind"]] += 1
        self._rows.append(row)
        if len(self._rows) >= PART_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        columns = {name: [row.get(name) for row in self._rows] for name in self._schema.names}
        columns["payload"] = [
            json.dumps(row["payload"], ensure_ascii=False) if "payload" in row else None for row in self._rows
        ]
        columns["migration"] = [
            json.dumps({name: row[name] for name in ("from", "to", "reason", "at")})
            if "from" in row
            else None
            for row in self._rows
        ]
        buffer = self._pa.BufferOutputStream()
        self._pq.write_table(self._pa.table(columns, self._schema), buffer)
        replace_file(self._folder / f"part-{self._parts:06}.parquet", buffer.getvalue().to_pybytes())
        self._parts, self._rows = self._parts + 1, []

    def finish(self, end: dict[str, Any]) -> None:
        self._flush()
        replace_file(self._folder / "end.json", json_text(end).encode())

    def fail(self, row: dict[str, Any]) -> None:
        self._flush()
        replace_file(self._folder / "missing.json", json_text(row).encode())
