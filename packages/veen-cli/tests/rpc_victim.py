"""A server or a client of calls as a process that a test kills: ``python rpc_victim.py serve|call …``.

The method ``note`` adds a line to the file of its idempotency key. ``note`` skips an effect that its key has
already had; ``note_once`` does not look, and relies on ``at_most_once``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from veen_core.ids import HubId
from veen_hub.client import Identity, connect
from veen_overlays.live.rpc import Call, RpcError, RpcServer, Service, access, connect_rpc
from veen_overlays.rpc.exchange import INTERRUPTED

STREAM = "calls"
LEASE_SEC = 3


def add_line(path: Path, line: str) -> None:
    """Append a line, durably."""
    with path.open("a") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def make_service(effects: Path, pid: int) -> Service:
    service = Service()

    @service.method("note")
    def note(text: str, call: Call) -> str:
        path = effects / f"note-{call.key.hex()}"
        add_line(effects / f"run-{call.key.hex()}", f"{pid}\n")
        if not path.exists():
            add_line(path, f"{text}\n")
        return text.upper()

    @service.method("note_once", at_most_once=True)
    def note_once(text: str, call: Call) -> str:
        add_line(effects / f"once-{call.key.hex()}", f"{text}\n")
        return text.upper()

    return service


async def serve(url: str, trust: HubId, root: Path, name: str) -> None:
    me, reader = Identity.load(root / "server"), Identity.load(root / "reader")
    async with connect(url, me, trust=trust, state=root / f"{name}-state") as hub:
        stream = hub.stream(STREAM, readers=reader.dh_keys)
        service = make_service(root / "effects", os.getpid())
        server = RpcServer(service, access(stream, hub.log_reader()), me.signing_key, lease_sec=LEASE_SEC)
        await server.run()


async def call(url: str, trust: HubId, root: Path, name: str, keys: range) -> None:
    """Make calls with these idempotency keys; print each answer once it is there."""
    me, reader = Identity.load(root / name), Identity.load(root / "reader")
    async with connect(url, me, trust=trust, state=root / f"{name}-state") as hub:
        stream = hub.stream(STREAM, readers=reader.dh_keys)
        async with connect_rpc(access(stream, hub.log_reader())) as client:

            async def one(idem: int) -> None:
                method = "note_once" if idem % 4 == 3 else "note"
                while True:
                    try:
                        found = await client.call(method, [f"text {idem}"], idem=idem, timeout=10)
                    except RpcError as exc:
                        if exc.code != INTERRUPTED:
                            await asyncio.sleep(0.2)
                            continue
                        found = INTERRUPTED
                    print(idem, found, flush=True)  # noqa: T201
                    return

            await asyncio.gather(*(one(idem) for idem in keys))


def main() -> None:
    role, url, trust, root, name, *numbers = sys.argv[1:]
    hub = HubId.from_hex(trust)
    if role == "serve":
        asyncio.run(serve(url, hub, Path(root), name))
    else:
        first, count = map(int, numbers)
        asyncio.run(call(url, hub, Path(root), name, range(first, first + count)))


if __name__ == "__main__":
    main()
