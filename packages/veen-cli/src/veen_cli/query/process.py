"""The service as a process: connects to the hub, follows the streams, serves, drains (spec-4 10.1)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from veen_cli.query.config import ServiceConfig
from veen_cli.query.event_sources import open_view, view_name
from veen_cli.query.listener import ApiServer
from veen_cli.query.record_log import HubRecordLog
from veen_core.cap import CapToken
from veen_core.client_state import ClientBounds
from veen_core.keys import DhKey
from veen_hub.client import Hub, Identity, Retry, Tls, connect
from veen_hub.ops.logs import log
from veen_hub.ops.stopping import stop_event
from veen_overlays.live.query_service.counters import ServiceCounters
from veen_overlays.live.query_service.execution import Executor
from veen_overlays.live.query_service.job_store import JobStore
from veen_overlays.live.query_service.principals import Authenticator
from veen_overlays.live.query_service.recording import QueryRecords
from veen_overlays.live.query_service.result_files import ResultFiles
from veen_overlays.live.query_service.service import QueryService
from veen_overlays.live.query_service.view_backend import ViewBackend

TOKEN_BOUNDS: Final = ClientBounds(max_client_id_lifetime_sec=2**40, max_msgs_per_client_id_per_label=2**63)
"""The service writes under its identity's own key, as its token demands; the token bounds the key's use."""
RETRY: Final = Retry(max_attempts=20, deadline=10.0, max_outage=10.0, max_delay=1.0)
"""A request to the hub waits up to 10 s for a hub that is away; then the service answers the client with an
error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceKeys:
    """The opened keys and tokens of the service."""

    identity: Identity
    readers: tuple[DhKey, ...]
    tokens: tuple[CapToken, ...]


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


async def serve(
    config: ServiceConfig,
    authenticator: Authenticator,
    keys: ServiceKeys,
    announce: Callable[[str, str], None],
    *,
    rebuild: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain; ``announce`` gets the addresses of API and probes.

    ``rebuild`` discards the view and reads it from the logs again.
    """
    stopping = stop_event()
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(connected(config, keys))
        service, backend = await stack.enter_async_context(
            opened(config, authenticator, keys, hub, rebuild=rebuild)
        )
        server = ApiServer(config, service, authenticator)
        stack.push_async_callback(server.stop_probes)
        probes = await server.start_probes()
        if backend.is_incomplete and not await _read_first(backend, probes, stopping):
            log(logging.INFO, "stopped")
            return
        await stack.enter_async_context(working(service, backend, config.results.drain_sec))
        stack.push_async_callback(server.stop)
        url = await server.start()
        log(
            logging.INFO,
            "listening",
            url=url,
            probes=probes,
            streams=len(config.streams),
            principals=len(config.principals),
        )
        announce(url, probes)
        await stopping.wait()
        log(logging.INFO, "draining", seconds=config.results.drain_sec)
        await server.stop_accepting()
    log(logging.INFO, "stopped")


async def _read_first(backend: ViewBackend, probes: str, stopping: asyncio.Event) -> bool:
    """Read the logs into the view; return False if the process is to stop before they are read.

    Queries that an earlier process accepted need the view as far as it was then.
    """
    log(logging.INFO, "reading_logs", probes=probes)
    reading, stop = asyncio.create_task(backend.refresh()), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((reading, stop), return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            return False
        await reading
        return True
    finally:
        for task in (reading, stop):
            task.cancel()
        await asyncio.gather(reading, stop, return_exceptions=True)


@asynccontextmanager
async def connected(config: ServiceConfig, keys: ServiceKeys) -> AsyncIterator[Hub]:
    """Connect to the hub and authorize the service's tokens."""
    hub = config.hub
    tls = Tls(ca=hub.ca, cert=hub.cert, key=hub.cert_key) if hub.ca or hub.cert else None
    async with connect(
        hub.url,
        keys.identity,
        trust=hub.trust,
        state=config.state / "client",
        bounds=TOKEN_BOUNDS,
        tls=tls,
        retry=RETRY,
    ) as found:
        if found.connection.status.gating:
            for token in keys.tokens:
                await found.authorize(token)
        yield found


@asynccontextmanager
async def opened(
    config: ServiceConfig, authenticator: Authenticator, keys: ServiceKeys, hub: Hub, *, rebuild: bool
) -> AsyncIterator[tuple[QueryService, ViewBackend]]:
    """Open the view, the jobs and the results; yield the service and its view."""
    async with AsyncExitStack() as stack:
        jobs = JobStore(config.state / "jobs")
        stack.callback(jobs.close)
        files = ResultFiles(config.state / "results")
        sources = config.sources((*keys.readers, *keys.identity.dh_keys))
        held_in = {each.name: each.held_in for each in config.streams if each.held_in is not None}
        folder = config.state / f"view-{view_name(hub.hub_id, sources, held_in)}"
        backend = await stack.enter_async_context(open_view(hub, sources, folder, rebuild=rebuild))
        records = QueryRecords(HubRecordLog(hub, keys.readers), milliseconds)
        counters = ServiceCounters()
        executor = Executor(
            backend,
            jobs,
            files,
            records,
            authenticator,
            now=milliseconds,
            counters=counters,
            max_running=config.results.max_running,
            keep_sec=config.results.keep_sec,
        )
        service = QueryService(
            backend=backend,
            jobs=jobs,
            files=files,
            records=records,
            executor=executor,
            now=milliseconds,
            counters=counters,
        )
        yield service, backend


@asynccontextmanager
async def working(service: QueryService, backend: ViewBackend, drain_sec: float) -> AsyncIterator[None]:
    """Keep the view up to date and run queries, also those that an earlier process left; drain at the end."""
    async with backend.refreshing():
        await service.executor.start()
        try:
            yield
        finally:
            await service.executor.stop(drain_sec)
