"""A process of its own that counts imported events from the target hub alone: `python import_ledger.py …`.

It shares no state with the bridge: it reads the import stream with its reader key, verifies the log, and
prints, for each source position, how many imported events it has.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

from veen_hub.client import Identity, connect
from veen_overlays.bridge import ImportedEvent


async def count(url: str, trust: str, folder: str, stream: str) -> dict[int, int]:
    found: Counter[int] = Counter()
    async with connect(url, Identity.load(Path(folder)), trust=trust) as hub:
        async for message in hub.stream(stream).read():
            found[ImportedEvent.decode(message.body).source_stream_seq] += 1
    return dict(found)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(count(*sys.argv[1:5]))))
