"""The ledger of a target stream, read from the target hub alone.

    python import_ledger.py URL HUB_ID KEYS STREAM

The process shares no state with a bridge: it reads the stream with its reader key, verifies the log, and
prints the source position of every wrapped event, in the order of the stream.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from veen_hub.client import Identity, connect
from veen_overlays.bridge import ImportedEvent


def imported_positions(url: str, trust: str, keys: Path, stream: str) -> list[int]:
    """Return the source positions of a stream's events, as a process of its own reads them."""
    command = [sys.executable, __file__, url, trust, str(keys), stream]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found: list[int] = json.loads(done.stdout)
    return found


async def read(url: str, trust: str, folder: str, stream: str) -> list[int]:
    async with connect(url, Identity.load(Path(folder)), trust=trust) as hub:
        return [
            ImportedEvent.decode(message.body).source_stream_seq
            async for message in hub.stream(stream).read()
        ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(read(*sys.argv[1:5]))))
