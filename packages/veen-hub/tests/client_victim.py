"""A client that sends until it is killed, and says what was acknowledged: ``url hub_id state round``."""

from __future__ import annotations

import asyncio
import os
import sys

from veen_core.hashing import H
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_hub.client import Identity, connect


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def main(url: str, hub_id: str, state: str, number: str) -> None:
    identity = Identity(
        signing_key=SigningKey(SigningSeed(H(b"victim/sign"))), dh_keys=(DhKey(DhSecret(H(b"victim/dh"))),)
    )
    async with connect(url, identity, trust=hub_id, state=state, batch=8) as hub:  # several batches in a turn
        stream, n = hub.stream("crash"), 0
        say("ready")
        while True:
            await stream.send(f"{number}/{n}")
            say(f"{number}/{n}")
            batch = [f"{number}/{n + 1 + k}" for k in range(30)]
            k = 0
            async for _ in stream.send_many(batch):
                say(batch[k])
                k += 1
            n += 31


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
