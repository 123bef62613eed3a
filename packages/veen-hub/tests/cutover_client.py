"""A client process for the cutover tests: it sends until it is killed, or dies at a chosen write.

cutover_client.py send URL HUB_ID SUCCESSOR_URL STATE STREAM FIRST     prints each body that has a receipt
cutover_client.py settle URL HUB_ID SUCCESSOR_URL STATE STREAM WRITES  dies after so many writes
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from veen_core.hashing import H
from veen_core.ids import HubId
from veen_hub.client import FileStateStore, Identity, Retry, connect

RETRY = Retry(max_attempts=1_000, max_delay=0.1, deadline=30.0)
KILLED = 9


def identity_of(name: str) -> Identity:
    """The same identity for the same name, in every process."""
    return Identity.generate(lambda size: H(name.encode())[:size])


class DyingStore(FileStateStore):
    """A state store whose process dies right after a number of writes."""

    def __init__(self, root: Path, writes: int) -> None:
        super().__init__(root)
        self._left = writes

    def _wrote(self) -> None:
        self._left -= 1
        if self._left <= 0:
            os._exit(KILLED)

    def save(self, hub: HubId, name: str, content: bytes, *, durable: bool = True) -> None:
        super().save(hub, name, content, durable=durable)
        self._wrote()

    def commit(self, hub: HubId, records: Mapping[str, bytes]) -> None:
        super().commit(hub, records)
        self._wrote()


async def send(hubs: tuple[str, str, str], state: Path, name: str, first: int) -> None:
    url, hub_id, successor = hubs
    numbers = itertools.count(first)
    async with connect(
        url, identity_of("alice"), trust=hub_id, successor=successor, state=state, retry=RETRY, batch=8
    ) as hub:
        stream = hub.stream(name)
        while True:
            bodies = [str(number) for number in itertools.islice(numbers, 20)]
            acknowledged: Iterator[str] = iter(bodies)
            async for _receipt in stream.send_many(bodies):
                os.write(1, f"{next(acknowledged)}\n".encode())
            single = [str(number) for number in itertools.islice(numbers, 3)]
            await asyncio.gather(*(stream.send(body) for body in single))
            os.write(1, "".join(f"{body}\n" for body in single).encode())


async def settle(hubs: tuple[str, str, str], state: Path, name: str, writes: int) -> None:
    url, hub_id, successor = hubs
    store = DyingStore(state, writes)
    async with connect(
        url, identity_of("alice"), trust=hub_id, successor=successor, state=store, retry=RETRY
    ) as hub:
        await hub.stream(name).settle()


if __name__ == "__main__":
    work, url, hub_id, successor, state, name, number = sys.argv[1:]
    run = send if work == "send" else settle
    asyncio.run(run((url, hub_id, successor), Path(state), name, int(number)))
