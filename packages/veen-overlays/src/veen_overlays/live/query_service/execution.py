"""Run accepted queries with bounded concurrency, and delete expired results (query-api-spec §8).

``job_run`` has the steps of one query.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from veen_overlays.live.query_service.backend import QueryBackend
from veen_overlays.live.query_service.counters import ServiceCounters
from veen_overlays.live.query_service.job import JobState, QueryJob
from veen_overlays.live.query_service.job_run import JobRunner
from veen_overlays.live.query_service.job_store import JobStore
from veen_overlays.live.query_service.principals import Authenticator, PrincipalLimits
from veen_overlays.live.query_service.recording import QueryRecords
from veen_overlays.live.query_service.result_files import ResultFiles
from veen_overlays.live.query_service.service_log import LOGGER, log

EXPIRY_BATCH: Final = 256
EXPIRY_PERIOD_SEC: Final = 10.0


class Executor:
    """Runs the jobs of a store with bounded concurrency. ``start`` resumes the jobs of an earlier process."""

    def __init__(
        self,
        backend: QueryBackend,
        jobs: JobStore,
        files: ResultFiles,
        records: QueryRecords,
        authenticator: Authenticator,
        *,
        now: Callable[[], int],
        counters: ServiceCounters,
        max_running: int,
        keep_sec: int,
    ) -> None:
        """``max_running`` bounds the queries of all principals together; results are kept ``keep_sec``."""
        self._jobs, self._files, self._authenticator, self._now = jobs, files, authenticator, now
        self._runner = JobRunner(
            backend, jobs, files, records, limits_of=self._limits, now=now, counters=counters
        )
        self._max_running, self._keep_sec = max_running, keep_sec
        self._waiting: list[str] = []
        self._running: dict[str, asyncio.Task[None]] = {}
        self._running_of: Counter[str] = Counter()
        self._finished: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def load(self) -> tuple[int, int]:
        """Return the number of waiting jobs and the number of running jobs."""
        return len(self._waiting), len(self._running)

    # --- life

    async def start(self) -> None:
        """Delete what killed processes left half-written and enqueue the jobs that have not finished."""
        self._files.delete_all_but(self._jobs.kept())
        for job in self._jobs.unfinished():
            if job.state is JobState.RUNNING:
                self._jobs.change(job.result_id, state=JobState.PENDING)
                log(logging.WARNING, "query_interrupted", result_id=job.result_id, attempts=job.attempts)
            self.enqueue(job.result_id)
        self._spawn(self._expire())

    async def stop(self, drain_sec: float) -> None:
        """Start no more jobs, let the running ones finish for ``drain_sec``, then interrupt them.

        An interrupted job is PENDING, and is run again at the next start.
        """
        running = list(self._running.values())
        self._waiting.clear()
        self._draining = True
        if running:
            await asyncio.wait(running, timeout=drain_sec)
        self._runner.stopping = True  # each running query's budget checks this flag
        for task in (*self._tasks, *self._running.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._running.values(), return_exceptions=True)

    _draining = False

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the queue

    def enqueue(self, result_id: str) -> None:
        """Run a job as soon as its principal and the service have room."""
        self._finished.setdefault(result_id, asyncio.Event())
        self._waiting.append(result_id)
        self._dispatch()

    async def wait_finished(self, result_id: str, seconds: float) -> None:
        """Wait until a job has finished, but no longer than ``seconds``."""
        event = self._finished.get(result_id)
        if event is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()

    def _dispatch(self) -> None:
        """Start waiting jobs in their order; skip jobs of principals that are at their limit."""
        if self._draining:
            return
        for result_id in list(self._waiting):
            if len(self._running) >= self._max_running:
                return
            job = self._jobs.by_result(result_id)
            if job is None or self._running_of[job.principal] >= self._limits(job).max_running:
                continue
            self._waiting.remove(result_id)
            self._running_of[job.principal] += 1
            task = asyncio.create_task(self._runner.run(job))
            self._running[result_id] = task
            task.add_done_callback(lambda done, job=job: self._ended(job, done))  # type: ignore[misc]

    def _ended(self, job: QueryJob, task: asyncio.Task[None]) -> None:
        del self._running[job.result_id]
        self._running_of[job.principal] -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            LOGGER.error("query_crashed", exc_info=error, extra={"fields": {"result_id": job.result_id}})
        if (event := self._finished.pop(job.result_id, None)) is not None:
            event.set()
        self._dispatch()

    def _limits(self, job: QueryJob) -> PrincipalLimits:
        principal = self._authenticator.named(job.principal)
        return principal.limits if principal is not None else PrincipalLimits()

    async def record_request(self, job: QueryJob) -> QueryJob:
        """Record the request of a job and note its receipt; return the job with the receipt."""
        return await self._runner.record_request(job)

    # --- expiry

    async def _expire(self) -> None:
        """Delete expired results until the task is cancelled."""
        while True:
            before = self._now() - self._keep_sec * 1_000
            old = await asyncio.to_thread(self._jobs.finished_before, before, EXPIRY_BATCH)
            for job in old:
                # Mark the result as deleted before deleting its files, so that no client reads a part of it.
                await asyncio.to_thread(self._jobs.change, job.result_id, is_deleted=True)
                await asyncio.to_thread(self._files.delete, job.result_id)
            if old:
                log(logging.INFO, "results_deleted", count=len(old))
            if len(old) < EXPIRY_BATCH:
                await asyncio.sleep(min(EXPIRY_PERIOD_SEC, self._keep_sec))
