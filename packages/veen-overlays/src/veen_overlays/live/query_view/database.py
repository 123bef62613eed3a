"""The embedded database: DuckDB with bounded memory, threads and time, and access to the view's files only.

A query that runs out of its budget is interrupted. One that needs more memory than the limit spills to a
private folder of bounded size, or fails.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from veen_overlays.live.private_files import FOLDER_MODE
from veen_overlays.live.query_view.files.manifest import REBUILD
from veen_overlays.query.engine import DEFAULT_BUDGET, Budget
from veen_overlays.query.errors import QueryError, QueryErrorCode, execution_failed

INTERRUPT_SECONDS: Final = 0.05
"""Time between two checks whether a query must stop."""
_SETTINGS: Final = (
    "SET parquet_metadata_cache = true",
    "SET allowed_directories = [$folder]",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""In this order: DuckDB refuses each setting once the next one is set."""
SPILL: Final = "spill"
"""The folder for intermediate results, in the view's folder; emptied when the database opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLimits:
    """The limits of one engine, shared by its queries."""

    memory_bytes: int = 512 << 20
    spill_bytes: int = 4 << 30
    threads: int = 2


class Database:
    """An in-memory DuckDB that may read the files of one view."""

    def __init__(self, folder: Path, limits: DatabaseLimits) -> None:
        spill = folder / SPILL
        spill.mkdir(mode=FOLDER_MODE, exist_ok=True)
        for left in spill.iterdir():
            left.unlink()
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{limits.memory_bytes}B",
                "threads": limits.threads,
                "temp_directory": str(spill),
                "max_temp_directory_size": f"{limits.spill_bytes}B",
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "preserve_insertion_order": False,
            },
        )
        for setting in _SETTINGS:
            self._connection.execute(setting, {"folder": str(folder)} if "$" in setting else {})

    def close(self) -> None:
        """Close the database; running queries fail."""
        self._connection.close()

    @contextlib.contextmanager
    def running(self, sql: str, parameters: Mapping[str, Any], budget: Budget) -> Iterator[Any]:
        """Run a statement; yield its result as an Arrow reader. Errors become ``QueryError``."""
        cursor = self._connection.cursor()
        try:
            with _interrupted(cursor, budget):
                yield cursor.execute(sql, parameters).to_arrow_reader(10_000)
        except duckdb.InterruptException:
            budget.check()
            raise execution_failed("the query was interrupted", "run it again") from None
        except duckdb.OutOfMemoryException:
            raise QueryError(
                QueryErrorCode.LIMIT_EXCEEDED,
                "the query needs more memory than the engine may use",
                action="narrow the filter, or raise the engine's memory limit",
            ) from None
        except duckdb.Error as exc:
            raise execution_failed(f"the view cannot be read: {exc}", REBUILD) from exc
        finally:
            cursor.close()

    def fetch(self, sql: str, parameters: Mapping[str, Any], budget: Budget) -> Sequence[tuple[Any, ...]]:
        """Run a statement; return all of its rows."""
        with self.running(sql, parameters, budget) as batches:
            table = batches.read_all()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@contextlib.contextmanager
def _interrupted(cursor: Any, budget: Budget) -> Iterator[None]:
    """Interrupt a statement when its budget is used up."""
    if budget.stop is DEFAULT_BUDGET.stop:
        yield
        return
    budget.check()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(INTERRUPT_SECONDS):
            if budget.stop():
                cursor.interrupt()

    watcher = threading.Thread(target=watch, name="query-deadline", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
