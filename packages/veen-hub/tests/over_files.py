"""Hubs with drop folders, and requests of tests over them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veen_hub.client.wire.file_transport import FileTransport
from veen_hub.client.wire.transport import Timeouts

from .conftest import StartHub
from .serving import PATIENCE, Answer, RunningHub


def with_files(start_hub: StartHub, place: Path, name: str = "data", **settings: Any) -> RunningHub:
    """Start a hub that reads and writes the client's folders itself."""
    spool = place / "spool"
    for folder in ("in", "out"):
        (spool / folder).mkdir(parents=True, exist_ok=True)
    (spool / "in" / "status.reply").unlink(missing_ok=True)
    return start_hub(name, file__inbox=spool / "out", file__outbox=spool / "in", file__poll_ms=5, **settings)


def ask(
    spool: Path,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request, with the answer that ``serving.request`` would give."""

    async def talk() -> Answer:
        transport = FileTransport(f"file://{spool}", tls=None, timeouts=Timeouts(request=PATIENCE))
        (spool / "in" / "status.reply").unlink(missing_ok=True)  # the test's clock may have moved
        found = await transport.exchange(method, path, body, headers, max_bytes=64 * 1_048_576)
        return Answer(found.status, found.headers, found.body)

    return asyncio.run(talk())
