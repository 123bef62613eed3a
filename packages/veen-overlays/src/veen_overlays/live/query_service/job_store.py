"""Jobs on disk, in one SQLite file that survives kill -9 and power cuts.

Each change is one transaction and durable before the call returns (``synchronous = FULL``). The database
itself keeps three rules: a query_id is used once (``duplicate_query_id``), only transitions of the state
table happen, and a job that is COMPLETED or FAILED never changes, except that its rows are deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from veen_core.errors import StateError
from veen_overlays.live.query_service.job import FINAL, TRANSITIONS, JobState, QueryJob, RecordedAt
from veen_overlays.query.errors import QueryError, QueryErrorCode

DATABASE: Final = "jobs.sqlite"
LOCK: Final = "lock"
SCHEMA_VERSION: Final = 1
COLUMNS: Final = (
    "result_id",
    "query_id",
    "principal",
    "descriptor",
    "ends",
    "submitted_at",
    "state",
    "attempts",
    "request_mark",
    "request",
    "result_mark",
    "result",
    "digest",
    "finished_at",
    "error_code",
    "message",
    "is_deleted",
)
_FINAL: Final = ", ".join(f"'{state}'" for state in sorted(FINAL))
_ALLOWED: Final = " OR ".join(
    f"(OLD.state = '{old}' AND NEW.state = '{new}')"
    for old, news in TRANSITIONS.items()
    for new in sorted(news)
)
SCHEMA: Final = f"""
CREATE TABLE jobs (
    result_id TEXT PRIMARY KEY,
    query_id TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    descriptor TEXT NOT NULL,
    ends TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    request_mark TEXT NOT NULL,
    request TEXT,
    result_mark TEXT,
    result TEXT,
    digest TEXT,
    finished_at INTEGER,
    error_code TEXT,
    message TEXT,
    is_deleted INTEGER NOT NULL
) STRICT;
CREATE INDEX unfinished ON jobs (principal, submitted_at) WHERE state NOT IN ({_FINAL});
CREATE INDEX kept ON jobs (finished_at) WHERE is_deleted = 0 AND state = '{JobState.COMPLETED}';
CREATE TRIGGER transitions BEFORE UPDATE OF state ON jobs WHEN OLD.state != NEW.state AND NOT ({_ALLOWED})
BEGIN SELECT RAISE(ABORT, 'this transition does not exist'); END;
CREATE TRIGGER immutable BEFORE UPDATE ON jobs
    WHEN OLD.state IN ({_FINAL}) AND NEW.is_deleted = OLD.is_deleted
BEGIN SELECT RAISE(ABORT, 'a finished job does not change'); END;
CREATE TRIGGER complete BEFORE UPDATE ON jobs WHEN NEW.state = '{JobState.COMPLETED}'
    AND (NEW.request IS NULL OR NEW.result IS NULL OR NEW.digest IS NULL)
BEGIN SELECT RAISE(ABORT, 'a result is completed only after its request and digest are recorded'); END;
PRAGMA user_version = {SCHEMA_VERSION};
"""


class JobStore:
    """The jobs of one service. One process owns the folder; any of its threads may call a method."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, or make it; raise if another process owns it, or its content is damaged."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._folder = folder
        self._lock_file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._own()
            self._database = self._open()
        except BaseException:
            os.close(self._lock_file)
            raise
        self._mutex = threading.Lock()

    def _own(self) -> None:
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"{self._folder} is in use by another process",
                action="stop the other service, or configure another `state` folder",
            ) from None

    def _open(self) -> sqlite3.Connection:
        path = self._folder / DATABASE
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite copies the file's mode
        database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
            elif version != SCHEMA_VERSION:
                raise StateError(
                    f"{path} has version {version}, this program reads {SCHEMA_VERSION}",
                    action="start the version of veen that wrote it, or configure another `state` folder",
                )
            (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise StateError(f"{path} is damaged: {verdict}", action=_DAMAGED)
        except sqlite3.DatabaseError as exc:
            database.close()
            raise StateError(f"{path} cannot be read: {exc}", action=_DAMAGED) from None
        except StateError:
            database.close()
            raise
        return database

    def close(self) -> None:
        """Close the database and release the folder."""
        with self._mutex:
            self._database.close()
        os.close(self._lock_file)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One durable transaction; a failed one leaves the jobs as they were."""
        with self._mutex:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                self._database.execute("ROLLBACK")
                raise

    # --- changes

    def add(self, job: QueryJob, *, max_pending: int) -> None:
        """Add a job; refuse a query_id that was used before, and more unfinished jobs than allowed."""
        with self._transaction() as database:
            if database.execute("SELECT 1 FROM jobs WHERE query_id = ?", (job.query_id,)).fetchone():
                raise QueryError(
                    QueryErrorCode.DUPLICATE_QUERY_ID,
                    f"query_id {job.query_id} was submitted before",
                    action="leave query_id out, or choose another one",
                )
            (unfinished,) = database.execute(
                f"SELECT count(*) FROM jobs WHERE principal = ? AND state NOT IN ({_FINAL})",  # noqa: S608 - constants
                (job.principal,),
            ).fetchone()
            if unfinished >= max_pending:
                raise QueryError(
                    QueryErrorCode.LIMIT_EXCEEDED,
                    f"{job.principal} has {unfinished} unfinished queries, which is the maximum",
                    action="wait until one of them has finished",
                )
            marks = ", ".join("?" * len(COLUMNS))
            database.execute(
                f"INSERT INTO jobs ({', '.join(COLUMNS)}) VALUES ({marks})",  # noqa: S608 - constants
                _row(job),
            )

    def change(self, result_id: str, **values: Any) -> None:
        """Change columns of a job; raise if the state table forbids it."""
        names = ", ".join(f"{name} = ?" for name in values)
        if not set(values) <= set(COLUMNS):
            raise KeyError(f"no such column: {sorted(set(values) - set(COLUMNS))}")
        with self._transaction() as database:
            try:
                done = database.execute(
                    f"UPDATE jobs SET {names} WHERE result_id = ?",  # noqa: S608 - names of columns
                    (*map(_cell, values.values()), result_id),
                )
            except sqlite3.IntegrityError as exc:
                raise StateError(f"job {result_id} cannot change: {exc}") from None
            if done.rowcount != 1:
                raise StateError(f"there is no job {result_id}")

    # --- reading

    def by_result(self, result_id: str) -> QueryJob | None:
        return self._one("result_id = ?", result_id)

    def by_query(self, query_id: str) -> QueryJob | None:
        return self._one("query_id = ?", query_id)

    def _one(self, condition: str, value: str) -> QueryJob | None:
        found = list(self._select(condition, (value,)))
        return found[0] if found else None

    def unfinished(self) -> list[QueryJob]:
        """The jobs that are neither COMPLETED nor FAILED, oldest first."""
        return list(self._select(f"state NOT IN ({_FINAL}) ORDER BY submitted_at, result_id", ()))

    def finished_before(self, moment: int, most: int) -> list[QueryJob]:
        """Completed jobs whose rows are still on disk and that finished before ``moment``, oldest first."""
        condition = (
            f"is_deleted = 0 AND state = '{JobState.COMPLETED}' "
            "AND finished_at < ? ORDER BY finished_at LIMIT ?"
        )
        return list(self._select(condition, (moment, most)))

    def kept(self) -> set[str]:
        """The result_ids whose files must stay: of completed jobs, and of jobs that may be committed."""
        with self._mutex:
            rows = self._database.execute(
                "SELECT result_id FROM jobs WHERE is_deleted = 0 "  # noqa: S608 - names of states
                f"AND state != '{JobState.FAILED}' "
                f"AND (state = '{JobState.COMPLETED}' OR result_mark IS NOT NULL)"
            ).fetchall()
        return {result_id for (result_id,) in rows}

    def counts(self) -> dict[JobState, int]:
        """The number of jobs in each state."""
        with self._mutex:
            rows = self._database.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall()
        return {state: dict(rows).get(state.value, 0) for state in JobState}

    def _select(self, condition: str, values: tuple[Any, ...]) -> Iterator[QueryJob]:
        with self._mutex:
            rows = self._database.execute(
                f"SELECT {', '.join(COLUMNS)} FROM jobs WHERE {condition}",  # noqa: S608 - constants
                values,
            ).fetchall()
        return map(_job, rows)


_DAMAGED: Final = (
    "restore the file from a copy, or move the folder away: requests and digests are in the log, results "
    "are computed again"
)


def _cell(value: Any) -> Any:
    if isinstance(value, RecordedAt):
        return json.dumps(value.as_json(), sort_keys=True)
    return value.value if isinstance(value, JobState) else int(value) if isinstance(value, bool) else value


def _row(job: QueryJob) -> tuple[Any, ...]:
    return tuple(_cell(getattr(job, name)) for name in COLUMNS)


def _job(row: tuple[Any, ...]) -> QueryJob:
    values = dict(zip(COLUMNS, row, strict=True))
    for name in ("request", "result"):
        values[name] = RecordedAt(**json.loads(values[name])) if values[name] is not None else None
    return QueryJob(
        **{**values, "state": JobState(values["state"]), "is_deleted": bool(values["is_deleted"])}
    )
