"""The mirror as a process: logs, its own port, signals, and draining (spec-4 6.2, 10.1 to 10.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from veen_bridge.mirror.probes import ProbesListener
from veen_bridge.mirror.service import MirrorService, MirrorSettings
from veen_hub.ops.logs import log
from veen_hub.ops.stopping import stop_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The address of the probes and metrics; port 0 takes a free one."""

    host: str
    port: int


async def serve(settings: MirrorSettings, listen: Listen, announce: Callable[[str], None]) -> None:
    """Mirror until SIGTERM or SIGINT, or until a failure that ends the service; then drain and return.

    ``announce`` gets the address of the probes.
    """
    service, stopping = MirrorService(settings), stop_event()
    probes = ProbesListener(service.metrics, listen.host, listen.port)
    url = await probes.start()
    announce(url)
    log(logging.INFO, "listening", url=url, streams=len(settings.pairs), operation="mirror")
    try:
        await service.run(stopping)
    finally:
        await probes.stop()
        log(logging.INFO, "stopped", operation="mirror")
