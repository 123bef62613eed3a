"""The ledger of a label, read from one hub alone: `python log_ledger.py URL HUB_ID LABEL`.

The process shares no state with the writers: it reads and verifies the whole log, and prints client_id,
client_seq and RECEIPT of every entry, in order.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from veen_core.ids import ClientId, HubId, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_hub.client import connect


def read_ledger(url: str, hub_id: HubId, label: Label) -> list[tuple[ClientId, int, Receipt]]:
    """Return client_id, client_seq and RECEIPT of each entry, as a process of its own reads them."""
    command = [sys.executable, __file__, url, hub_id.hex(), label.hex()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [
        (ClientId.from_hex(client), seq, Receipt.decode(bytes.fromhex(receipt)))
        for client, seq, receipt in json.loads(done.stdout)
    ]


async def read(url: str, trust: str, label: str) -> list[tuple[str, int, str]]:
    found = []
    async with connect(url, trust=trust) as hub:
        reader, wanted = hub.log_reader(), Label.from_hex(label)
        newest = await reader.head(wanted)
        if newest is not None:
            async for page in reader.pages(wanted, StreamSeq(1), newest.stream_seq):
                found += [(e.msg.client_id.hex(), int(e.msg.client_seq), e.receipt_bytes.hex()) for e in page]
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(read(*sys.argv[1:4]))))
