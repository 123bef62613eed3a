"""HTTP/2 by the reverse proxy of the guide: nginx in front of a hub gives the hub's own answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core import cbor
from veen_core.api import ErrorEnvelope, StreamItem, SubmitResponse
from veen_core.errors import DecodeError
from veen_hub.client import Identity, Tls, connect
from veen_testing.ports import free_port

from .certificates import Certificates
from .conftest import StartProcess
from .people import Writer, envelope
from .serving import HubProcess, until

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "transports.md"
FOUND = shutil.which("nginx") and shutil.which("curl")
pytestmark = pytest.mark.skipif(
    not FOUND and os.environ.get("VEEN_PROXY") != "required",
    reason="needs nginx and curl (on Debian: apt install nginx-light curl)",
)


class Proxy:
    """nginx with the guide's configuration, asked by curl over HTTP/2."""

    def __init__(self, folder: Path, hub: HubProcess, certificates: Certificates) -> None:
        self.port = free_port()
        self._authority, self._folder = certificates.authority, folder
        (block,) = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        cert, key = certificates.hub
        for old, new in (
            ("listen 8443", f"listen 127.0.0.1:{self.port}"),
            ("/etc/veen/chain.pem", str(cert)),
            ("/etc/veen/key.pem", str(key)),
            ("http://127.0.0.1:8080", hub.url),
        ):
            assert old in block, "the guide's configuration has changed"
            block = block.replace(old, new)
        temporary = "".join(f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy"))
        unused = "".join(f"{name}_temp_path {folder}/{name};" for name in ("fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(
            f"daemon off; pid {folder}/pid; error_log stderr warn; worker_processes 1; events {{}}\n"
            f"http {{ access_log off; {temporary} {unused}\n{block}\n}}\n"
        )
        command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        until(lambda: self.call("/v1/status")[0] == "2 200", "the proxy answers")

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def command(self, path: str, *options: str) -> list[str]:
        return ["curl", "-sS", "--http2", "--cacert", str(self._authority), *options, self.url + path]

    def call(self, path: str, body: bytes | None = None, kind: str = "application/cbor") -> tuple[str, bytes]:
        """Return the version and status, such as ``2 200``, and the body."""
        out = self._folder / "answer"
        options = ["-o", str(out), "-w", "%{http_version} %{http_code}", "-H", "Accept: application/cbor"]
        if body is not None:
            options += ["--data-binary", "@-", "-H", f"Content-Type: {kind}"]
        done = subprocess.run(self.command(path, *options), input=body, capture_output=True, check=False)
        return done.stdout.decode(), out.read_bytes() if out.exists() else b""

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        assert self._process.stderr is not None
        self._process.stderr.close()


@pytest.fixture
def hub(start_process: StartProcess) -> HubProcess:
    return start_process("data", "--open")


@pytest.fixture
def proxy(tmp_path: Path, hub: HubProcess, certificates: Certificates) -> Iterator[Proxy]:
    (tmp_path / "nginx").mkdir()
    made = Proxy(tmp_path / "nginx", hub, certificates)
    yield made
    made.close()


def test_messages_and_refusals_are_those_of_the_hub(hub: HubProcess, proxy: Proxy) -> None:
    alice = Writer("alice", hub.status().identity.hub_id)
    status, body = proxy.call("/v1/submit", envelope(alice.next()))
    assert (status, SubmitResponse.decode(body).receipt.stream_seq) == ("2 200", 1)
    flipped = alice.message(2, sig=bytes(64))
    for wrong in (envelope(flipped), envelope(alice.message(9)), b"\xff", envelope(bytes(2 * 1_048_576))):
        direct = hub.post("/v1/submit", wrong)
        status, body = proxy.call("/v1/submit", wrong)
        found, expected = ErrorEnvelope.decode(body), ErrorEnvelope.decode(direct.body)
        assert status == f"2 {direct.status}"
        assert (found.code, found.detail) == (expected.code, expected.detail)


def test_a_live_stream_passes_entry_by_entry(hub: HubProcess, proxy: Proxy) -> None:
    alice = Writer("alice", hub.status().identity.hub_id)
    hub.accept(alice.next())
    path = f"/v1/stream/{alice.label.hex()}?from=1"
    command = proxy.command(path, "-N", "-H", "Accept: application/cbor-seq")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        pipe = follower.stdout
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        received = bytearray()

        def seqs() -> list[int]:
            received.extend(pipe.read() or b"")
            with contextlib.suppress(DecodeError):  # the end of an item has not arrived
                items = cbor.split_sequence(bytes(received))
                return [StreamItem.decode(item).stream_seq for item in items]
            return []

        until(lambda: seqs() == [1], "the first entry has arrived")
        hub.accept(alice.next())
        until(lambda: seqs() == [1, 2], "the second entry has arrived")
        assert follower.poll() is None, "the stream is still open"
        follower.kill()


def test_our_client_sends_follows_and_stores_attachments_through_the_proxy(
    hub: HubProcess, proxy: Proxy, certificates: Certificates
) -> None:
    async def story() -> None:
        trust, tls = hub.status().identity.hub_id, Tls(ca=certificates.authority)
        async with connect(proxy.url, Identity.generate(), trust=trust, tls=tls) as connected:
            stream = connected.stream("orders")
            content = os.urandom(3 * 1_048_576)
            await stream.send("with a file", attachments=[content])
            await stream.send("two coffees")
            read = [message async for message in stream.read(from_seq=1)]
            assert read[1].text == "two coffees"

    asyncio.run(story())
