"""One shard's process: ``python -m veen_hub.shards.shard_process``, started by the coordinator alone.

Its settings arrive on stdin, which stays open: when it ends, the coordinator has ended, and so does the
shard, at once and without a last word. It writes one line to stdout when its unix socket answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
from aiohttp import web

from veen_core import cbor
from veen_core.errors import VeenError
from veen_core.ids import UnixTime
from veen_core.limits import DEFAULT_LIMITS
from veen_hub.api.routes import METRICS
from veen_hub.http.bounded_listener import ListenerEndpoint
from veen_hub.http.exchange import route_of
from veen_hub.http.keys import READERS_ARE_CHECKED
from veen_hub.http.listener import Listener
from veen_hub.http.tls import server_context
from veen_hub.http.unix_listener import UnixListener
from veen_hub.main import EXIT_CODES, HubFailedError, allow_many_connections
from veen_hub.ops.clock import load_clock
from veen_hub.ops.config import HubConfig
from veen_hub.ops.garbage import collect_rarely
from veen_hub.ops.logs import finish, set_up, write_failure
from veen_hub.ops.process_memory import protect_memory
from veen_hub.server import SHUTDOWN_SEC, make_app
from veen_hub.shards.anchoring import CoordinatorAnchor
from veen_hub.shards.forwarding import PartClient, socket_path
from veen_hub.shards.part_calls import PartCalls
from veen_hub.shards.part_hub import FloorClock
from veen_hub.shards.routing import Router, label_routes
from veen_hub.shards.shard_hub import ShardHub, copy_control
from veen_hub.shards.submit_link import SubmitConnection, SubmitLink
from veen_storage import LockedError, StorageError
from veen_storage.shards.fence import Fence, PartStore
from veen_storage.shards.sharded_layout import (
    CONTROL,
    ShardedLayout,
    control_label_of,
    part_name,
    part_numbers,
    part_origin,
    read_shard_map,
)

LOCK_SEC: Final = 15.0
"""How long a new process waits for the end of the one before it."""
COORDINATOR_ENDED: Final = 6
"""Exit code when the coordinator has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """The settings that the coordinator passes to a shard's process."""

    config: HubConfig
    root: Path
    number: int
    fence: int
    floor: UnixTime
    """The newest time in the hub log: this shard issues no earlier one."""
    port: int
    """Port of the hub's address, which all shards share."""


class ShardServer:
    """The listeners of one shard's process: its unix sockets, and its share of the hub's address."""

    def __init__(self, settings: ShardSettings) -> None:
        self._settings = settings
        self._layout = layout = ShardedLayout(settings.root)
        self._map = read_shard_map(layout)
        number = settings.number
        others = [other for other in part_numbers(self._map.count) if other != number]
        self._clients = {other: PartClient(self._socket(other), part_name(other)) for other in others}
        self._links = {
            other: SubmitLink(self._submit_socket(other), part_name(other)) for other in others if other >= 0
        }
        self._clock = FloorClock(load_clock(settings.config.clock), settings.floor)
        self._stopped = asyncio.Event()
        self._public_runner: web.AppRunner | None = None
        """At the hub's address, once the coordinator has opened this part."""

    def _socket(self, number: int) -> str:
        return socket_path(self._layout.sockets, part_name(number))

    def _submit_socket(self, number: int) -> str:
        return socket_path(self._layout.sockets, f"{part_name(number)}-submit")

    # --- starting

    async def run(self) -> None:
        settings = self._settings
        store = await self._open()
        try:
            await self._take_tokens(store)
            has_anchor = settings.config.anchor.backend != "none"
            self.hub = ShardHub(
                settings.config,
                store,
                number=settings.number,
                count=self._map.count,
                clock=self._clock,
                origin=part_origin(store.identity.hub_id, self._map, settings.number),
                links=self._links,
                anchor=CoordinatorAnchor(self._clients[CONTROL]) if has_anchor else None,
            )
        except BaseException:
            store.close()
            raise
        await self.hub.start()
        await self._listen_for_parts()
        collect_rarely()
        print("ready", flush=True)  # noqa: T201 - the coordinator waits for this line
        failed = asyncio.create_task(self.hub.failed.wait())
        stopped = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            raise HubFailedError(f"{part_name(settings.number)}: {self.hub.failure}")
        await self._close()

    async def _open(self) -> PartStore:
        """Open the part; the process before this one may still be ending."""
        settings, config = self._settings, self._settings.config
        deadline = time.monotonic() + LOCK_SEC
        fence = Fence(self._layout.fence(settings.number), settings.fence)
        while True:
            fence.check()
            try:
                return PartStore(
                    config.data_dir,
                    fence,
                    keys_directory=config.keys_dir,
                    limits=DEFAULT_LIMITS.lowered(config.limits) if config.limits else None,
                    keeping=config.replication.keeping,
                )
            except LockedError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.05)

    async def _take_tokens(self, store: PartStore) -> None:
        """Append every entry of the control label that this part lacks, before it can admit anything."""
        control = control_label_of(store.identity.hub_id)
        while True:
            head = store.read.head(control)
            after = head.stream_seq if head is not None else 0
            answer = await self._clients[CONTROL].call("GET", f"/part/control?after={after}")
            frames = [bytes(frame) for frame in cbor.decode_items(answer)]
            if not frames:
                break
            batch = store.batch(self._clock.now())
            copy_control(batch, store, frames, control)
            store.commit(batch)
        if not await asyncio.to_thread(store.settle):  # the hub learns its streams from the index
            raise StorageError(f"{store.layout.root}: the tokens of this hub could not be applied")

    async def _listen_for_parts(self) -> None:
        calls = PartCalls(self.hub, self._serve, self._drain, self._stopped.set)
        app = make_app(self.hub)
        app[READERS_ARE_CHECKED] = True  # by the shard that the request came from
        app.add_routes(map(route_of, (*label_routes(), METRICS, *calls.routes())))
        self._part_runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SEC)
        await self._part_runner.setup()
        self._parts = UnixListener(self._part_runner, self.hub, self._socket(self._settings.number))
        await self._parts.start()
        path = self._submit_socket(self._settings.number)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        loop = asyncio.get_running_loop()
        self._submits = await loop.create_unix_server(lambda: SubmitConnection(self.hub.enter_own), path)

    async def _serve(self) -> None:
        """Listen at the hub's address; a second call changes nothing."""
        if self._public_runner is not None:
            return
        settings, config = self._settings, self._settings.config
        router = Router(settings.number, self._map.count, self.hub.admission.control_label, self._clients)
        app = make_app(self.hub)
        app.add_routes(map(route_of, router.routes()))
        self._public_runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SEC)
        await self._public_runner.setup()
        endpoint = ListenerEndpoint.of("listen", config.listen, port=settings.port, reuse_port=True)
        context = server_context(config.tls) if config.tls is not None else None
        listener = Listener(self._public_runner, self.hub, endpoint, context, takes_submits=True)
        await listener.start()
        self.hub.realm_follower.start(listener.name)

    # --- stopping

    async def _drain(self) -> None:
        """Accept nothing more from clients or parts, and settle what was accepted."""
        self.hub.stopping.set()
        await self.hub.realm_follower.stop()
        if self._public_runner is not None:
            for site in list(self._public_runner.sites):
                await site.stop()
        await self.hub.drain()

    async def _close(self) -> None:
        if self._public_runner is not None:
            await self._public_runner.cleanup()
        self._submits.close()
        for link in self._links.values():
            link.close()
        await self._part_runner.cleanup()
        for client in self._clients.values():
            await client.close()
        await self.hub.stop()


def _end_with_the_coordinator(loop: asyncio.AbstractEventLoop) -> None:
    """End this process when stdin ends: nothing that is acknowledged is lost by that."""

    def ended() -> None:
        if not os.read(0, 1):
            os._exit(COORDINATOR_ENDED)

    os.set_blocking(0, False)
    loop.add_reader(0, ended)


@contextlib.contextmanager
def _logging(config: HubConfig, number: int) -> Iterator[None]:
    always = {"role": config.role, "universe_id": config.universe_id, "part": part_name(number)}
    if config.tenant_id is not None:
        always["tenant_id"] = config.tenant_id
    set_up(config.log_level, **always)
    try:
        yield
    finally:
        finish()


async def _run(settings: ShardSettings) -> None:
    _end_with_the_coordinator(asyncio.get_running_loop())
    allow_many_connections()
    await ShardServer(settings).run()


def main() -> int:
    protect_memory()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the coordinator handles it, and stops its shards
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the coordinator, which started this process
    try:
        with _logging(settings.config, settings.number):
            uvloop.run(_run(settings))
    except (VeenError, OSError) as exc:
        write_failure(f"{part_name(settings.number)}: {exc}", role=settings.config.role)
        return next((code for kind, code in EXIT_CODES.items() if isinstance(exc, kind)), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
