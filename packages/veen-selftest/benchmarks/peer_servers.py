"""The servers that ``peers`` compares: each is started in a folder, and written to with its usual client.

Every server is set to make a message durable before it acknowledges it, and is asked whether it is:

- VEEN syncs its journal before it signs a receipt. The client syncs a journal of its own before it sends.
- NATS JetStream: file storage, ``sync_interval: always``, and the publisher awaits the acknowledgement.
- Redis streams: ``appendonly yes``, ``appendfsync always``, and ``XADD``.
- PostgreSQL: ``fsync`` and ``synchronous_commit`` on, and one ``INSERT`` per transaction.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from veen_core.cap import mint
from veen_core.hashing import H
from veen_core.keys import SigningKey, SigningSeed
from veen_core.stream import stream_id
from veen_hub.client import Identity, connect
from veen_selftest.command.selftest import STOP_SIGNALS
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.own_hub import PROGRAM, OwnHub
from veen_selftest.runner.hub_setup import PLAIN

HOST = "127.0.0.1"
BODY = "x" * 200
START_SECONDS = 30
STOP_SECONDS = 10
TOKEN_SECONDS = 1_000_000
INSTALL_HINT = "install the dependency group peers (see peers.py --help)"

Write = Callable[[int], Awaitable[object]]
"""Writes one message and returns once it is acknowledged; the number names one of the writers."""


class PeerError(Exception):
    """A server did not start, or does not have the settings that it was given."""


class Peer(Protocol):
    """One server and its client."""

    name: str

    def absent(self) -> str | None:
        """Return what to install, or None if everything is there."""

    def start(self, folder: Path, stack: contextlib.ExitStack) -> str:
        """Start the server, with its end on the stack; returns its version and its client's."""

    def writers(self, count: int) -> contextlib.AbstractAsyncContextManager[Write]:
        """Connect that many writers."""


# --- programs


def find_program(name: str, *folders: Path) -> str | None:
    """Find a program on PATH, next to this Python, or in one of the folders."""
    places = [os.environ.get("PATH", ""), str(Path(sys.executable).parent), *map(str, folders)]
    return shutil.which(name, path=os.pathsep.join(places))


def missing(*, packages: Sequence[str] = (), programs: Sequence[tuple[str | None, str]] = ()) -> str | None:
    """Return what to install for the packages and programs that are not there, or None."""
    for package in packages:
        try:
            version(package)
        except PackageNotFoundError:
            return f"no {package}: {INSTALL_HINT}"
    return next((remedy for found, remedy in programs if found is None), None)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        port: int = bound.getsockname()[1]
        return port


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Deliver signals that end the benchmark only after a process is started and its end is on the stack."""
    pending: list[int] = []
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handled = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, lambda got, _frame: pending.append(got))
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])
    if pending:
        signal.raise_signal(pending[0])


class ServerProcess:
    """A process in a session of its own, so that Ctrl-C reaches only the benchmark, which ends it."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        stack: contextlib.ExitStack,
        *,
        stop: signal.Signals = signal.SIGTERM,
        **started: Any,
    ) -> None:
        self._log = folder / "server.log"
        self._name = Path(command[0]).name
        with self._log.open("wb") as log, interrupts_deferred():
            self._process = subprocess.Popen(  # noqa: S603 - the server under test
                command, stdout=log, stderr=log, cwd=folder, start_new_session=True, **started
            )
            stack.callback(self._end, stop)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until the server is ready; raises ``PeerError`` if it ends or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(encoding="utf-8", errors="replace").strip()[-300:]
                raise PeerError(f"{self._name} did not start: {said}")
            time.sleep(0.05)

    def _end(self, stop: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(stop)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def require_settings(server: str, found: Mapping[str, object], expected: Mapping[str, object]) -> None:
    if found != expected:
        raise PeerError(f"{server} is not durable: expected {expected}, found {found}")


# --- the servers


PER_STREAM = 50_000
MAX_STREAMS = 40


class Veen:
    """All writers share a connection and a stream, which takes 65,536 messages of a client_id (KEX1+ 4.1)."""

    name = "VEEN"

    def absent(self) -> str | None:
        return None

    def start(self, folder: Path, stack: contextlib.ExitStack) -> str:
        self._folder = folder
        self._admin = SigningKey(SigningSeed(H(b"peers")))
        own = OwnHub(PROGRAM, folder / "hub", PLAIN, self._admin, START_SECONDS)
        stack.callback(own.kill)
        with interrupts_deferred():
            self._hub: HttpHub = own.start()
        return f"{version('veen-hub')}, veen_hub.client"

    @contextlib.asynccontextmanager
    async def writers(self, count: int) -> AsyncIterator[Write]:
        del count
        alice = Identity.generate()
        names = [f"peers {number}" for number in range(MAX_STREAMS)]
        token = mint(self._admin, alice.client_id, map(stream_id, names), TOKEN_SECONDS)
        hub_id = self._hub.known.identity.hub_id
        async with connect(self._hub.url, alice, trust=hub_id, state=self._folder / "client") as hub:
            await hub.authorize(token)
            streams, sent = [hub.stream(name) for name in names], itertools.count()
            yield lambda _number: streams[next(sent) // PER_STREAM].send(BODY)


class JetStream:
    """One stream with a subject per writer; all writers share a connection, as nats-py is used."""

    name = "NATS JetStream"

    def absent(self) -> str | None:
        program = find_program("nats-server")
        return missing(packages=["nats-py"], programs=[(program, f"no nats-server: {INSTALL_HINT}")])

    def start(self, folder: Path, stack: contextlib.ExitStack) -> str:
        program = find_program("nats-server")
        assert program is not None
        config = folder / "nats.conf"
        store = json.dumps(str(folder / "data"))
        config.write_text(
            f'host: {HOST}\nport: -1\nhttp: "{HOST}:-1"\n'
            f"jetstream {{ store_dir: {store}, sync_interval: always }}\n",
            encoding="utf-8",
        )
        server = ServerProcess([program, "-c", str(config), "--ports_file_dir", str(folder)], folder, stack)
        server.wait_until(lambda: any(path.stat().st_size for path in folder.glob("*.ports")))
        (ports,) = folder.glob("*.ports")
        about = json.loads(ports.read_text(encoding="utf-8"))
        (self._url,) = about["nats"]
        (monitoring,) = about["monitoring"]
        require_settings(
            self.name,
            {"sync_always": _get_json(f"{monitoring}/jsz?config=true")["config"].get("sync_always")},
            {"sync_always": True},
        )
        return f"{_get_json(f'{monitoring}/varz')['version']}, nats-py {version('nats-py')}"

    @contextlib.asynccontextmanager
    async def writers(self, count: int) -> AsyncIterator[Write]:
        import nats  # noqa: PLC0415 - may be absent
        from nats.js.api import StorageType, StreamConfig  # noqa: PLC0415 - may be absent

        connection = await nats.connect(self._url)
        try:
            stream = connection.jetstream()
            await stream.add_stream(
                StreamConfig(name="peers", subjects=["peers.*"], storage=StorageType.FILE)
            )
            yield lambda number: stream.publish(
                f"peers.{number % count}", BODY.encode(), timeout=START_SECONDS
            )
        finally:
            await connection.close()


def _get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=START_SECONDS) as answer:  # noqa: S310 - on loopback
        return json.load(answer)


class RedisStreams:
    """One stream; every writer has a connection, from redis-py's pool."""

    name = "Redis streams"

    def absent(self) -> str | None:
        remedy = (
            "no redis-server: install it (Debian: apt install redis-server), or the dependency group peers"
        )
        return missing(packages=["redis"], programs=[(find_program("redis-server"), remedy)])

    def start(self, folder: Path, stack: contextlib.ExitStack) -> str:
        import redis  # noqa: PLC0415 - may be absent

        program = find_program("redis-server")
        assert program is not None
        self._port = free_port()
        durable = {"appendonly": "yes", "appendfsync": "always"}
        settings = {"bind": HOST, "port": str(self._port), "dir": str(folder), "save": "", **durable}
        flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
        server = ServerProcess([program, *flags], folder, stack)
        with redis.Redis(host=HOST, port=self._port) as client:

            def answers() -> bool:
                with contextlib.suppress(redis.ConnectionError):
                    return bool(client.ping())
                return False

            server.wait_until(answers)
            found = client.config_get("append*")
            require_settings(self.name, {name: found[name] for name in durable}, durable)
            return f"{client.info('server')['redis_version']}, redis-py {version('redis')}"

    @contextlib.asynccontextmanager
    async def writers(self, count: int) -> AsyncIterator[Write]:
        import redis.asyncio  # noqa: PLC0415 - may be absent

        async with redis.asyncio.Redis(host=HOST, port=self._port, max_connections=count) as client:
            yield lambda _number: client.xadd("peers", {"body": BODY})


class PostgreSql:
    """One table; every writer has a connection in autocommit mode."""

    name = "PostgreSQL"
    _folders = tuple(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))

    def absent(self) -> str | None:
        remedy = "no PostgreSQL server: install it (Debian: apt install postgresql)"
        programs = [(find_program(name, *self._folders), remedy) for name in ("initdb", "postgres")]
        if os.geteuid() == 0 and _unprivileged_user() is None:
            programs.append((None, "the server refuses to run as root: run peers.py as another user"))
        return missing(packages=["psycopg"], programs=programs)

    def start(self, folder: Path, stack: contextlib.ExitStack) -> str:
        import psycopg  # noqa: PLC0415 - may be absent

        initdb, postgres = (find_program(name, *self._folders) for name in ("initdb", "postgres"))
        assert initdb is not None
        assert postgres is not None
        user = _unprivileged_user() if os.geteuid() == 0 else None
        as_user: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        if user is not None:
            _require_reachable(folder, user)
            shutil.chown(folder, user)
        data = folder / "data"
        made = subprocess.run(  # noqa: S603 - the server under test
            [initdb, "-D", str(data), "-U", "peers", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            **as_user,
        )
        if made.returncode:
            raise PeerError(f"initdb failed: {made.stderr.strip()[-300:]}")
        port = free_port()
        durable = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
        settings = {"listen_addresses": HOST, "port": port, "unix_socket_directories": "", **durable}
        flags = [f"--{name}={value}" for name, value in {**settings, "max_connections": 300}.items()]
        server = ServerProcess(
            [postgres, "-D", str(data), *flags], folder, stack, stop=signal.SIGINT, **as_user
        )
        self._where = f"host={HOST} port={port} user=peers dbname=postgres"

        def answers() -> bool:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self._where).close()
                return True
            return False

        server.wait_until(answers)
        with psycopg.connect(self._where) as connection:
            connection.execute("CREATE TABLE messages (id bigserial PRIMARY KEY, body text NOT NULL)")
            found = {name: connection.execute(f"SHOW {name}").fetchone()[0] for name in durable}
            require_settings(self.name, found, durable)
            release = connection.info.server_version
        return f"{release // 10_000}.{release % 10_000}, psycopg {version('psycopg')}"

    @contextlib.asynccontextmanager
    async def writers(self, count: int) -> AsyncIterator[Write]:
        import psycopg  # noqa: PLC0415 - may be absent

        async with contextlib.AsyncExitStack() as stack:
            connections = [
                await stack.enter_async_context(
                    await psycopg.AsyncConnection.connect(self._where, autocommit=True)
                )
                for _ in range(count)
            ]
            yield lambda number: connections[number].execute(
                "INSERT INTO messages (body) VALUES (%s)", [BODY]
            )


def _unprivileged_user() -> str | None:
    """Return the user that PostgreSQL runs as if this is root: its server refuses root."""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    return None


def _require_reachable(folder: Path, user: str) -> None:
    for parent in folder.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise PeerError(
                f"PostgreSQL refuses to run as root, and the user {user} cannot enter {parent}: "
                "name a folder that every user may enter with --place"
            )


PEERS: tuple[Callable[[], Peer], ...] = (Veen, JetStream, RedisStreams, PostgreSql)
