"""The coordinator: the process that was started as ``veen-hub`` with more than one shard.

A policy is loaded by every process, and each follows the realm by itself: a shard whose view is too old
accepts nothing, whatever the others have.

It keeps the address of the hub reserved, so that no other program takes it while shards restart; only the
shards listen there. It ends at a signal, when its own part fails, or when a shard cannot be started.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from aiohttp import web

from veen_core.errors import ConfigError, VeenError
from veen_core.limits import DEFAULT_LIMITS
from veen_hub.api.routes import HEALTHZ, PROBE_ROUTES, Route
from veen_hub.http.bounded_listener import ListenerEndpoint
from veen_hub.http.exchange import route_of
from veen_hub.http.keys import READERS_ARE_CHECKED
from veen_hub.http.listener import Listener
from veen_hub.http.unix_listener import UnixListener
from veen_hub.hub import Hub
from veen_hub.ops.anchors import load_anchor
from veen_hub.ops.clock import load_clock
from veen_hub.ops.config import HubConfig, Network
from veen_hub.ops.config.hub_log import HubLogSettings
from veen_hub.ops.garbage import collect_rarely
from veen_hub.ops.logs import log
from veen_hub.ops.stopping import first_of, stop_event
from veen_hub.server import SHUTDOWN_SEC, make_app
from veen_hub.shards import merged_answers
from veen_hub.shards.anchoring import anchor_route
from veen_hub.shards.control_hub import ControlHub
from veen_hub.shards.forwarding import PartClient, socket_path
from veen_hub.shards.gate_copy import encode_gate
from veen_hub.shards.part_hub import FloorClock
from veen_hub.shards.shard_runner import ShardRunner
from veen_storage import Files
from veen_storage.shards.control_store import ControlStore
from veen_storage.shards.sharded_layout import (
    CONTROL,
    ShardedLayout,
    part_name,
    part_origin,
    read_shard_map,
)

START_SEC: Final = 90.0
"""How long the shards may take to serve after the start."""
RESERVE_SEC: Final = 5.0
"""How long the hub's address may still be in use at the start."""


LogStart = Callable[[HubConfig, Hub, str, str], None]
"""Logs the start of a hub at its address and at that of its probes."""


class Coordinator:
    """All processes of one sharded hub: ``start`` them, ``stop`` them."""

    def __init__(self, config: HubConfig) -> None:
        self.config = config
        self._layout = ShardedLayout(config.data_dir)
        self._opened = ExitStack()
        try:
            self._open()
        except BaseException:
            self._opened.close()
            raise

    def _open(self) -> None:
        config, layout = self.config, self._layout
        self._keys = config.keys_dir or layout.keys
        files = Files()
        limits = DEFAULT_LIMITS.lowered(config.limits) if config.limits else None
        store = ControlStore(
            layout, files, keys_directory=self._keys, limits=limits, keeping=config.replication.keeping
        )
        self._opened.callback(store.close)
        self._map = read_shard_map(layout)  # once it is locked: `veen hub reshard` may just have retired it
        files.make_directory(layout.sockets, 0o700)
        layout.sockets.chmod(0o700)  # a restored copy may be open to other users
        self._reserved = reserve(config)
        self._opened.callback(self._reserved.close)
        self.clients = {
            number: PartClient(socket_path(layout.sockets, part_name(number)), part_name(number))
            for number in range(self._map.count)
        }
        self.runners: dict[int, ShardRunner] = {}
        self._listening: list[web.AppRunner] = []
        self._clock = FloorClock(load_clock(config.clock), store.joined.hub_ts)
        own = dataclasses.replace(
            config, data_dir=layout.part(CONTROL).root, keys_dir=self._keys, network=Network()
        )
        self.hub = ControlHub(
            own,
            store,
            layout=layout,
            clock=self._clock,
            own_origin=part_origin(store.identity.hub_id, self._map, CONTROL),
            shards=self.clients,
            are_shards_up=self.are_shards_up,
            shards_load=lambda: max((runner.load for runner in self.runners.values()), default=0.0),
            anchor=load_anchor(config.anchor),
        )

    def are_shards_up(self) -> bool:
        """Return whether every shard serves its labels."""
        return bool(self.runners) and all(runner.up.is_set() for runner in self.runners.values())

    # --- starting

    @property
    def url(self) -> str:
        scheme = "https" if self.config.tls is not None else "http"
        host, port = self._reserved.getsockname()[:2]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def start(self, stopping: asyncio.Event) -> bool:
        """Start all processes; return whether all shards serve, False if ``stopping`` was set before."""
        hub = self.hub
        await hub.start()
        await hub.joining.check_place(CONTROL)
        await self._listen()
        for number, client in self.clients.items():
            self.runners[number] = ShardRunner(
                number,
                self._layout,
                self._shard_config(number),
                client,
                lambda: encode_gate(
                    hub.signing_gate,
                    has_ended=hub.handover is not None,
                    highest_load=hub.highest_load if self.config.pow.max_difficulty else 0.0,
                ),
                port=self._reserved.getsockname()[1],
                floor=lambda: self._clock.floor,
                check=hub.joining.check_place,
                on_down=hub.joining.forget,
                on_failure=hub._fail,
            )
            self.runners[number].start()
        serving = asyncio.create_task(self._wait_for_shards())
        waiting = [serving, *(asyncio.create_task(event.wait()) for event in (hub.failed, stopping))]
        await asyncio.wait(waiting, timeout=START_SEC, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if hub.failure is None and (serving.done() or stopping.is_set()):
            if serving.done():
                hub.realm_follower.start(self.url)
                hub.advertiser.start(self.url)
            return serving.done()
        raise VeenError(
            hub.failure or f"the shards did not start within {START_SEC:.0f} s", action="see the log"
        )

    async def _wait_for_shards(self) -> None:
        for runner in self.runners.values():
            await runner.up.wait()

    def _shard_config(self, number: int) -> HubConfig:
        """Return the settings of one shard: it has its part, and neither memories nor witnesses."""
        return dataclasses.replace(
            self.config,
            shards=1,
            data_dir=self._layout.part(number).root,
            keys_dir=self._keys,
            hub_log=HubLogSettings(),
            authority_url=None,
            authority_ca=None,
            discovery=None,  # the coordinator advertises the hub
        )

    async def _listen(self) -> None:
        config = self.config
        control = Route("GET", "/part/control", merged_answers.control_entries)
        routes = [*merged_answers.control_routes(), control]
        if self.hub.anchor is not None:
            routes.append(anchor_route(self.hub.anchor))
        app = self._app(*routes)
        app[READERS_ARE_CHECKED] = True  # by the shard that the request came from
        path = socket_path(self._layout.sockets, part_name(CONTROL))
        await UnixListener(await self._runner_of(app), self.hub, path).start()
        replaced = {"/readyz": merged_answers.readyz, "/metrics": merged_answers.metrics}
        probes = [dataclasses.replace(route, handler=replaced[route.pattern]) for route in PROBE_ROUTES]
        runner = await self._runner_of(self._app(HEALTHZ, *probes))
        port = config.probes.port
        if port is None:
            port = config.listen.port + 1 if config.listen.port else 0
        endpoint = ListenerEndpoint.of("probes", config.probes, port=port)
        listener = Listener(runner, self.hub, endpoint)
        await listener.start()
        self.probes_url = listener.name

    async def _runner_of(self, app: web.Application) -> web.AppRunner:
        runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SEC)
        await runner.setup()
        self._listening.append(runner)
        return runner

    def _app(self, *routes: Route) -> web.Application:
        app = make_app(self.hub)
        app.add_routes(map(route_of, routes))
        return app

    # --- stopping

    async def stop(self) -> None:
        """Let all shards settle what they have accepted, join the last heads, and end every process."""
        hub = self.hub
        await hub.advertiser.stop()  # before anything stops: the directory may be on this hub
        hub.stopping.set()
        await hub.realm_follower.stop()
        await asyncio.gather(*(runner.drain() for runner in self.runners.values()))
        await hub.drain()  # its last hub checkpoint covers what the shards have settled
        await asyncio.gather(*(runner.stop() for runner in self.runners.values()))
        for listening in self._listening:
            await listening.cleanup()
        for client in self.clients.values():
            await client.close()
        await hub.stop()
        for path in self._layout.sockets.iterdir():
            path.unlink()  # a copy of the directory needs none
        self._opened.close()


def reserve(config: HubConfig) -> socket.socket:
    """Bind the hub's address, which its shards listen at; raise if another program listens there.

    Shards of a coordinator that was killed end a moment after it.
    """
    listen, deadline = config.listen, time.monotonic() + RESERVE_SEC
    while True:
        try:
            return _reserve(listen.host, listen.port)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise ConfigError(
                    f"listen.host, listen.port: cannot listen on {listen.host} port {listen.port}: "
                    f"{exc.strerror or exc}",
                    action="choose another port (0 takes a free one), or stop the program that listens there",
                ) from exc
        time.sleep(0.05)


def _reserve(host: str, port: int) -> socket.socket:
    family, kind, protocol, _name, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:  # without SO_REUSEPORT: fails if any process listens
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)
        address = probe.getsockname()
    reserved = socket.socket(family, kind, protocol)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except BaseException:
        reserved.close()
        raise
    return reserved


async def serve_shards(config: HubConfig, log_start: LogStart, *, quiet: bool) -> str | None:
    """Run a sharded hub until a signal or a failure; then drain. Return why it failed, or None.

    ``quiet``: the address is in the log only.
    """
    coordinator = Coordinator(config)
    hub = coordinator.hub
    stopping = stop_event()
    try:
        if not await coordinator.start(stopping):
            return None
        collect_rarely()
        log_start(config, hub, coordinator.url, coordinator.probes_url)
        if not quiet:
            # The starting program waits for this line. One write, because the log may go to the same file.
            line = f"veen-hub listening on {coordinator.url}, probes on {coordinator.probes_url}\n"
            print(line, end="", flush=True)  # noqa: T201
        await first_of(stopping, hub.failed)
        log(logging.INFO, "draining")
    finally:
        await coordinator.stop()
    log(logging.INFO, "stopped")
    return hub.failure
