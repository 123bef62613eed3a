"""Rows as a table, JSON lines, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from veen_cli.arguments.private_files import private_umask
from veen_cli.frame.exits import CommandFailed, Exit

FORMATS: Final = ("table", "json", "csv", "parquet")
MAX_CELL_CHARACTERS: Final = 60
Row = dict[str, Any]


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the names of all fields, in the order of their first use."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def table_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield an aligned table; long cells are shortened."""
    names = columns_of(rows)
    if not names:
        return
    cells = [[_shorten(_text(row.get(name))) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    for line in (names, *cells):
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()


def _shorten(text: str) -> str:
    flat = " ".join(text.split()) if "\n" in text else text
    return flat if len(flat) <= MAX_CELL_CHARACTERS else f"{flat[: MAX_CELL_CHARACTERS - 1]}…"


def json_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yield each row as one line of canonical JSON."""
    from veen_overlays.query import canonical_json  # noqa: PLC0415 - most commands do not need it

    return (canonical_json.encode(row).decode() for row in rows)


def csv_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows as CSV (RFC 4180, without the final line break of each line).

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    names = columns_of(rows)
    for cells in (names, *([_cell(row.get(name)) for name in names] for row in rows)):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(cells)
        yield line.getvalue()


def _cell(value: Any) -> str:
    text = _text(value)
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def write_parquet(rows: Sequence[Row], target: Path) -> None:
    """Write the rows to a Parquet file, 0600 if it is new.

    A column whose values have several types is JSON text.
    """
    # Imported here: the other formats do not need it.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = {}
    for name in columns_of(rows):
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        plain = len(kinds) <= 1 and kinds <= {str, bool, int, float}
        fits = int not in kinds or all(-(2**63) <= value < 2**63 for value in values if value is not None)
        columns[name] = pa.array(values if plain and fits else [_json(value) for value in values])
    try:
        with private_umask():
            pq.write_table(pa.table(columns), target)
    except OSError as exc:
        raise CommandFailed(f"{target} cannot be written: {exc}", Exit.USAGE) from None


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
