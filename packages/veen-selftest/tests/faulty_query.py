"""``veen-query`` with a fault, which the first argument names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from veen_cli.query.serve import main
from veen_overlays.live.query_service import job_store, principals, recording, routes, service, view_backend
from veen_overlays.live.query_service.job import RecordedAt
from veen_overlays.query.engine import QueryAnswer
from veen_overlays.query.errors import QueryError, QueryErrorCode

FAULTS: dict[str, Callable[[], None]] = {}


def fault(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(install: Callable[[], None]) -> Callable[[], None]:
        FAULTS[name] = install
        return install

    return add


def _answering(change: Callable[[QueryAnswer], QueryAnswer]) -> None:
    plain = view_backend.DuckDbEngine.execute
    view_backend.DuckDbEngine.execute = lambda *a, **k: change(plain(*a, **k))  # type: ignore[method-assign]


@fault("alters a value")
def _alters() -> None:
    _answering(lambda answer: replace(answer, rows=[{**row, "payload.number": 7} for row in answer.rows]))


@fault("repeats a row on every page")
def _repeats() -> None:
    plain = routes.QueryService.result

    async def result(*args: Any) -> Any:
        *head, offset, limit = args
        return await plain(*head, max(0, offset - 1), limit)

    routes.QueryService.result = result  # type: ignore[method-assign,assignment]


@fault("answers 500 to a wrong descriptor")
def _answers_500() -> None:
    def refuse(body: bytes, **options: Any) -> Any:
        try:
            return plain(body, **options)
        except QueryError as exc:
            raise QueryError(QueryErrorCode.INTERNAL_ERROR, exc.message) from None

    plain, service.parse_descriptor = service.parse_descriptor, refuse


@fault("shows results to every principal")
def _shows() -> None:
    service.QueryService._may_see = lambda *_: True  # type: ignore[method-assign,assignment]


@fault("lets every principal query every stream")
def _lets() -> None:
    principals.ServicePrincipal.may_read = lambda *_: True  # type: ignore[method-assign,assignment]


@fault("completes a result whose digest it did not record")
def _unrecorded() -> None:
    async def result(self: recording.QueryRecords, digest: str) -> RecordedAt:
        return replace(await self.request(digest, "x"), stream=recording.RESULTS)

    recording.QueryRecords.result = result  # type: ignore[method-assign]


@fault("audits no access")
def _unaudited() -> None:
    async def access(*_: Any) -> None:
        pass

    recording.QueryRecords.access = access  # type: ignore[method-assign,assignment]


@fault("forgets its jobs at every start")
def _forgets() -> None:
    plain = job_store.JobStore.__init__

    def init(self: job_store.JobStore, folder: Any) -> None:
        for file in folder.glob("jobs.sqlite*"):
            file.unlink()
        plain(self, folder)

    job_store.JobStore.__init__ = init  # type: ignore[method-assign]


if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    main()
