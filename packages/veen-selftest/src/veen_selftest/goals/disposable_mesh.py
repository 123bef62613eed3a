"""``goals_k8s_disposable_mesh``: tenants come and go, and no other hub notices (spec-4 12.2)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from veen_core.api import StreamRequest, StreamResponse
from veen_core.cap import mint
from veen_core.ids import StreamSeq
from veen_core.rejection import HTTP_STATUS, Code
from veen_core.stream import stream_id
from veen_hub.client import Identity
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.operator import Operator
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.hubs.server_process import ServerProcess
from veen_selftest.peers.hub_log_reader import fetch_checkpoint
from veen_selftest.peers.overlay_reader import connected
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HubSetup
from veen_selftest.trust.coverage import wait_for

STREAM: Final = "selftest/rules"
EVENTS: Final = 5
"""Events of the authority that each tenant gets."""
MIRROR_SECONDS: Final = 30.0
"""Longest time until a mirror has copied the events."""
LISTENING: Final = "veen-bridge listening on "
TENANT: Final = HubSetup(name="tenant", settings={"hub_log": {"max_entries": 1}})
"""A hub of the mesh: each has keys of its own."""


class Mesh(Operator):
    """An authority hub, and a bridge that mirrors one of its streams to a tenant."""

    def __init__(self, context: CheckContext, root: Path, authority: HttpHub) -> None:
        super().__init__(root, context.fleet.veen)
        self._context, self.authority = context, authority
        self.bridge = Identity.generate()
        self.write_identity("bridge", self.bridge.signing_key)

    @contextmanager
    def mirrored(self, tenant: HttpHub, name: str) -> Iterator[None]:
        """Mirror the authority's stream to a tenant until the end of the block."""
        assert tenant.admin is not None  # the selftest started the hub
        token = mint(tenant.admin, self.bridge.client_id, [stream_id(STREAM)], 3_600)
        (self.root / f"{name}.cap").write_bytes(token.encode())
        flags = self._flags(tenant, name)
        process = ServerProcess("the bridge", self.program, self.root / f"{name}.log")
        command = ("bridge", "mirror", *flags, "--listen", "127.0.0.1:0", "--state", str(self.root / name))
        try:
            process.start(LISTENING, *command)
            wait_for(
                self._context,
                f"the tenant {name} has not {EVENTS} copies",
                lambda: True if _size(tenant) >= EVENTS else None,
                MIRROR_SECONDS,
            )
            yield
        finally:
            process.kill()

    def check(self, tenant: HttpHub, name: str) -> None:
        """Require that the tenant has each event of the authority once, as the authority signed it."""
        code, found = self.veen_object("bridge", "mirror", *self._flags(tenant, name), "--check")
        row = found["streams"][STREAM]
        counts = {word: row[word] for word in ("checked", "faulty", "repeated", "missing")}
        expected = {"checked": EVENTS, "faulty": 0, "repeated": 0, "missing": 0}
        require_equal((code, counts), (0, expected), f"copies at the tenant {name} (spec-4 6.4, spec-3 10.4)")

    def _flags(self, tenant: HttpHub, name: str) -> tuple[str, ...]:
        root, source = self.root, self.authority
        return (
            *("--source-url", source.url, "--source-trust", source.known.identity.hub_id.hex()),
            *("--target-url", tenant.url, "--target-trust", tenant.known.identity.hub_id.hex()),
            *("--streams", STREAM, "--client", str(root / "bridge"), "--cap", str(root / f"{name}.cap")),
        )


def _mesh(context: CheckContext) -> None:
    """A tenant is deleted and made anew: it has every event once, and no other hub has changed."""
    with (
        tempfile.TemporaryDirectory(prefix="veen-selftest-mesh-") as folder,
        context.own_hub(TENANT).running() as authority,
        context.own_hub(TENANT).running() as west,
    ):
        asyncio.run(_publish(authority))
        mesh = Mesh(context, Path(folder), authority)
        east = context.own_hub(TENANT)
        with east.running() as hub, mesh.mirrored(west, "west"), mesh.mirrored(hub, "east"):
            pass
        before = _views(authority, west)
        _delete(east)
        with context.own_hub(TENANT).running() as hub, mesh.mirrored(hub, "east again"):
            mesh.check(hub, "east again")
        require_equal(_views(authority, west), before, "hub logs of the other hubs (spec-4 12.2)")
        mesh.check(west, "west")


def _delete(tenant: OwnHub) -> None:
    """Delete a tenant with its keys and data, as the deletion of its namespace does."""
    tenant.kill()
    shutil.rmtree(tenant.data)


def _size(hub: HttpHub) -> int:
    """Return the number of entries of the stream; a hub answers 404 while it has none."""
    question = StreamRequest(label=hub.label(stream_id(STREAM)), from_seq=StreamSeq(1))
    answer = hub.post("/v1/stream", question)
    return 0 if answer.status == HTTP_STATUS[Code.NOT_FOUND] else len(answer.read(StreamResponse).items)


def _views(*hubs: HttpHub) -> list[tuple[int, bytes, int]]:
    """Return size and root of each hub log, and the status of /readyz."""
    found = []
    for hub in hubs:
        checkpoint = fetch_checkpoint(hub)
        found.append((checkpoint.size, checkpoint.root, hub.get("/readyz").status))
    return found


async def _publish(authority: HttpHub) -> None:
    async with connected(authority, Identity.generate()) as hub:
        async for _ in hub.stream(STREAM).send_many([f"rule {n}" for n in range(EVENTS)]):
            pass


CHECKS: Final = (Check("goal.disposable-mesh", "goals_k8s_disposable_mesh, 12.2", _mesh),)
