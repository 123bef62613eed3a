"""Run pending operations of a stream and end with SIGKILL at the nth step; 0 never dies.

    operation_victim.py HUB HUB_ID IDENTITY READER STREAM EFFECTS STEP

The effect of an operation is a file named by its operation_id, which can be made only once.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

from veen_core.keystore import Secrets
from veen_hub.client import Identity, connect
from veen_overlays.live import Materializer, OperationRunner, PendingOperation
from veen_overlays.operations.overlays import PAYMENTS
from veen_overlays.operations.results import RESULTS
from veen_overlays.schema.record import Record
from veen_overlays.summary_tree.store import MemoryStore

url, trust, identity, reader, name, effects, step = sys.argv[1:]
steps, last = itertools.count(1), int(step)


def living() -> None:
    if next(steps) == last:
        os.kill(os.getpid(), signal.SIGKILL)


async def translate(pending: PendingOperation) -> str:
    with (Path(effects) / "calls").open("a") as calls:
        calls.write(f"{pending.operation_id.hex()} {pending.retried}\n")
    living()
    effect = Path(effects) / pending.operation_id.hex()
    if pending.retried and effect.exists():
        return "done before"
    effect.open("x").close()
    living()
    return "bonjour"


async def main() -> None:
    keys = Secrets.decode((Path(reader) / "secrets.cbor").read_bytes()).dh_keys
    async with connect(url, Identity.load(identity), trust=trust, state=f"{identity}/state") as hub:
        stream = hub.stream(name, readers=keys)

        async def send(record: Record) -> None:
            living()
            await stream.send(record)
            living()

        views = [
            Materializer(each, stream.label(), hub.log_reader(), key=keys, store=MemoryStore())
            for each in (PAYMENTS, RESULTS)
        ]
        for view in views:
            await view.open()
        runner = OperationRunner(
            *views,  # type: ignore[arg-type]
            {"translate": translate},
            send=send,
            runner=await stream.client_id(),
            clock=hub.connection.time,
        )
        await runner.run_pending()


asyncio.run(main())
