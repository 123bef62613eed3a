"""Figures of a network of containers, made from the manifests by the harness of ``k8s/tests``.

- ``k8s.tenant_ready_s``: from the start of a tenant's hub until its self-test has passed, as pods, divided by
  the same two programs as plain processes.
- ``k8s.image_mb``: the size of the image veen-hub beyond its base, in MB.
- ``k8s.drain_lost``: messages that are lost or doubled while the hub is restarted 20 times under load.
- ``k8s.start_ms``: from the start of the hub until /readyz, in a pod, divided by a plain one.

Needs root, podman and the images (``bin/images``). Plain processes run on this interpreter, pods on that of
the image. Each line is one JSON object: name, value, target, ok, about.

    .tox/selftest/bin/python packages/veen-selftest/benchmarks/k8s.py --quick
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import base64
import json
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "k8s" / "tests"))

import yaml
from cluster import Cluster, Namespace, Pod
from conftest import apply
from podman import podman

from veen_cli.kube.keys import HUB_ID
from veen_cli.kube.tenant import KubeNetwork
from veen_core.cap import CapToken, mint
from veen_core.ids import ClientId, HubId, StreamId
from veen_core.keystore import Secrets
from veen_hub.client import Identity, Retry, connect
from veen_hub.version import VERSION

STREAM: Final = "benchmark/drain"
RESTARTS: Final = 20
QUICK_RESTARTS: Final = 4
STARTS: Final = 7
QUICK_STARTS: Final = 3
SENDERS: Final = 8
BYTECODE: Final = Path(tempfile.gettempdir()) / f"veen-k8s-bytecode-{os.getpid()}"
POLL_SEC: Final = 0.02
MAX_SEC: Final = 60.0


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured ratio or number; at most ``target`` is wanted."""

    name: str
    value: float
    target: float
    about: str

    def line(self) -> str:
        ok = self.value <= self.target
        found = {"name": self.name, "value": round(self.value, 3), "target": self.target, "ok": ok}
        return json.dumps({**found, "about": self.about})


@contextmanager
def network() -> Iterator[tuple[Cluster, Namespace]]:
    """Run an authority; the figures start tenants."""
    with tempfile.TemporaryDirectory(prefix="veen-k8s-") as folder:
        cluster = Cluster(f"veen-bench-{secrets.token_hex(4)}", Path(folder))
        cluster.create()
        try:
            authority = apply(cluster, KubeNetwork(tenant=None, tag=VERSION, image_prefix="localhost/"))
            authority.start("StatefulSet", "veen-authority-hub")
            yield cluster, authority
        finally:
            cluster.delete()


def tenant(cluster: Cluster, name: str) -> Namespace:
    return apply(
        cluster,
        KubeNetwork(
            tenant=name, tag=VERSION, image_prefix="localhost/", persistent=True, network_policy=False
        ),
    )


# --- the same programs as plain processes


class PlainHub:
    """The hub of a tenant as a process of this machine: the same arguments, settings and keys."""

    def __init__(self, namespace: Namespace, authority: Pod, folder: Path) -> None:
        self.folder = folder
        self.port, self.probes_port = free_ports()
        data = namespace.objects["Secret", "veen-hub-keys"]["data"]
        (folder / "keys").mkdir(parents=True)
        for name, content in data.items():
            (folder / "keys" / name).write_bytes(base64.b64decode(content))
        config = namespace.objects["ConfigMap", "veen-hub-config"]["data"]
        settings = yaml.safe_load(config["hub.yaml"])
        settings |= {
            "authority_url": f"http://{authority.ip}:8080",
            "keys_dir": str(folder / "keys"),
            "listen": {"host": "127.0.0.1", "port": self.port},
            "probes": {"host": "127.0.0.1", "port": self.probes_port},
        }
        (folder / "hub.yaml").write_text(yaml.safe_dump(settings))
        self._admin = config["admin"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the process; return the seconds until it is ready."""
        template = ("--profile=tenant", f"--config={self.folder}/hub.yaml", f"--data-dir={self.folder}/data")
        command = [program("veen-hub"), *template, "--init-if-missing", "--rotate-if-new"]
        labels = {"VEEN_ROLE": "tenant", "VEEN_TENANT_ID": "plain", "VEEN_UNIVERSE_ID": "default"}
        started = time.monotonic()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment(**labels, VEEN_ADMIN=self._admin)
            )
        while not is_ready(f"http://127.0.0.1:{self.probes_port}/readyz"):
            if self._process.poll() is not None or time.monotonic() - started > MAX_SEC:
                raise SystemExit(f"the plain hub is not ready:\n{(self.folder / 'log').read_text()[-2_000:]}")
            time.sleep(POLL_SEC)
        return time.monotonic() - started

    def forget(self) -> None:
        """Delete the data directory, so that the next start makes it."""
        shutil.rmtree(self.folder / "data")

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(MAX_SEC)


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a plain process: with bytecode in a folder, as the image has it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(BYTECODE), **more}


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def free_ports() -> tuple[int, int]:
    """Return two ports on which nothing listens: a fixed one may belong to another hub of this machine."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


# --- the figures


def tenant_ready(cluster: Cluster, authority: Namespace, *, quick: bool) -> Figure:
    only = ["--only=scenario.*"] if quick else []
    (authority_pod,) = authority.pods.values()
    namespace = tenant(cluster, "ready")
    started = time.monotonic()
    namespace.start("Deployment", "veen-hub")
    code, output = namespace.run_job("veen-selftest-core", *only)
    in_pods = time.monotonic() - started
    if code != 0:
        raise SystemExit(output[-2_000:])
    with tempfile.TemporaryDirectory(prefix="veen-k8s-plain-") as folder:
        plain = PlainHub(namespace, authority_pod, Path(folder))
        admin = Path(folder) / "admin"
        admin.mkdir()
        for name, content in namespace.objects["Secret", "veen-admin-keys"]["data"].items():
            (admin / name).write_bytes(base64.b64decode(content))
            (admin / name).chmod(0o600)
        subprocess.run(
            [program("veen-selftest"), "--list"], check=True, capture_output=True, env=environment()
        )
        plain.start()  # both write their bytecode
        plain.stop()
        plain.forget()
        started = time.monotonic()
        plain.start()
        try:
            test = [
                program("veen-selftest"),
                "core",
                "--hub",
                f"http://127.0.0.1:{plain.port}",
                "--admin-key",
                str(admin),
            ]
            subprocess.run([*test, *only], check=True, stdout=subprocess.DEVNULL, env=environment())
            bare = time.monotonic() - started
        finally:
            plain.stop()
    namespace.delete()
    about = f"{in_pods:.1f} s in pods, {bare:.1f} s as plain processes{' (scenarios only)' if quick else ''}"
    return Figure("k8s.tenant_ready_s", in_pods / bare, 2.0, about)


def image_size() -> Figure:
    def size(image: str) -> int:
        return int(podman("image", "inspect", image, "--format={{.Size}}").stdout)

    layers = podman(
        "image", "inspect", f"localhost/veen-hub:{VERSION}", "--format={{json .RootFS.Layers}}"
    ).stdout
    below = {each: size(each) for each in base_images(json.loads(layers))}
    if not below:
        raise SystemExit("the base image of veen-hub is not here: build the image on this machine")
    base = max(below, key=lambda each: below[each])
    own = size(f"localhost/veen-hub:{VERSION}") - below[base]
    return Figure("k8s.image_mb", own / 1e6, 100.0, f"veen-hub beyond its base of {below[base] / 1e6:.0f} MB")


def base_images(layers: list[str]) -> Iterator[str]:
    """Yield the tagged images whose layers are the first ones of an image, and fewer."""
    for image in podman("images", "--format={{.Id}} {{.Repository}}").stdout.splitlines():
        id_, _, repository = image.partition(" ")
        shown = podman("image", "inspect", id_, "--format={{json .RootFS.Layers}}").stdout
        found = json.loads(shown)
        if repository != "<none>" and len(found) < len(layers) and layers[: len(found)] == found:
            yield id_


def start_time(cluster: Cluster, authority: Namespace, *, quick: bool) -> Figure:
    (authority_pod,) = authority.pods.values()
    namespace = tenant(cluster, "start")
    namespace.start("Deployment", "veen-hub").stop()
    pods: list[float] = []
    plains: list[float] = []
    with tempfile.TemporaryDirectory(prefix="veen-k8s-plain-") as folder:
        plain = PlainHub(namespace, authority_pod, Path(folder))
        plain.start()
        plain.stop()
        for _ in range(QUICK_STARTS if quick else STARTS):
            pod = namespace.start("Deployment", "veen-hub", ready=False)
            pods.append(pod.seconds_until_ready())
            pod.stop()
            plains.append(plain.start())
            plain.stop()
    namespace.delete()
    in_pod, bare = statistics.median(pods), statistics.median(plains)
    about = f"medians of {len(pods)} starts: {in_pod * 1e3:.0f} ms in a pod, {bare * 1e3:.0f} ms plain"
    return Figure("k8s.start_ms", in_pod / bare, 1.3, about)


def drain_lost(cluster: Cluster, *, quick: bool) -> Figure:
    restarts = QUICK_RESTARTS if quick else RESTARTS
    namespace = tenant(cluster, "drain")
    ip = cluster.free_ip()
    namespace.start("Deployment", "veen-hub", ip=ip)
    with tempfile.TemporaryDirectory(prefix="veen-k8s-client-") as folder:
        sent, found = asyncio.run(_send_through(namespace, ip, restarts, Path(folder)))
    namespace.delete()
    lost = sum(found.count(body) != 1 for body in sent) + sum(body not in sent for body in set(found))
    about = f"{len(sent)} messages by {SENDERS} senders over {restarts} restarts"
    return Figure("k8s.drain_lost", float(lost), 0.0, about)


async def _send_through(
    namespace: Namespace, ip: str, restarts: int, folder: Path
) -> tuple[set[str], list[str]]:
    """Restart the hub while senders send; return the bodies they sent, and those in the log."""
    data = namespace.objects["Secret", "veen-admin-keys"]["data"]
    admin = Secrets.decode(base64.b64decode(data["secrets.cbor"])).signing_key
    trust = HubId.from_hex(namespace.objects["Secret", "veen-hub-keys"]["metadata"]["annotations"][HUB_ID])

    async def token(client: ClientId, on: StreamId) -> CapToken:
        return mint(admin, client, [on], 3_600)

    writer, sent, done = Identity.generate(), set[str](), asyncio.Event()
    retry = Retry(max_attempts=10_000, max_delay=0.2, deadline=300.0)
    async with connect(
        f"http://{ip}:8080", writer, trust=trust, tokens=token, state=folder, retry=retry
    ) as hub:
        stream = hub.stream(STREAM)

        async def send(sender: int) -> None:
            number = 0
            while not done.is_set():
                body = f"{sender}/{number}"
                sent.add(body)
                await stream.send(body)
                number += 1

        async with asyncio.TaskGroup() as tasks:
            for sender in range(SENDERS):
                tasks.create_task(send(sender))
            for _ in range(restarts):
                await asyncio.sleep(0.5)
                await asyncio.to_thread(_restart, namespace, ip)
            done.set()
        return sent, [message.text async for message in stream.read()]


def _restart(namespace: Namespace, ip: str) -> None:
    """Replace the pod as the strategy Recreate does: SIGTERM, wait for the end, start the next."""
    (pod,) = namespace.pods.values()
    if (code := pod.stop()) != 0:
        raise SystemExit(f"the hub ended with {code}:\n{pod.logs()[-2_000:]}")
    namespace.start("Deployment", "veen-hub", ip=ip)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer restarts and starts, a shorter self-test")
    parser.add_argument("--only", action="append", help="only this figure; repeatable")
    given = parser.parse_args()
    ok = True
    atexit.register(shutil.rmtree, BYTECODE, ignore_errors=True)
    with network() as (cluster, authority):
        figures: dict[str, Callable[[], Figure]] = {
            "k8s.image_mb": image_size,
            "k8s.start_ms": lambda: start_time(cluster, authority, quick=given.quick),
            "k8s.tenant_ready_s": lambda: tenant_ready(cluster, authority, quick=given.quick),
            "k8s.drain_lost": lambda: drain_lost(cluster, quick=given.quick),
        }
        for name, measure in figures.items():
            if given.only is None or name in given.only:
                line = measure().line()
                print(line, flush=True)
                ok = ok and bool(json.loads(line)["ok"])
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
