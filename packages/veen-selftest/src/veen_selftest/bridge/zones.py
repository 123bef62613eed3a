"""Two zones with a hub each, and `veen bridge` as an operator uses it: only files cross (AGB0 4.2)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from veen_core.cap import mint
from veen_core.ids import HubId
from veen_core.receipt import Receipt
from veen_core.stream import stream_id
from veen_hub.client import Identity, Message, connect
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.operator import Operator
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG

EXPORT: Final = "export/selftest/events"
IMPORT: Final = "import/selftest/events"
AUDIT: Final = "bridge/offline/log"
"""The audit stream of the target zone (AGB0 4.6)."""
REFUSED_EXIT_CODE: Final = 3
"""Exit code of `veen bridge import` if a bundle is refused, and of `reconcile` if there is a finding."""


class BridgedZones(Operator):
    """A source zone, a target zone, a bridge identity in each, and a folder as the removable medium."""

    def __init__(self, root: Path, veen: Sequence[str], source: HttpHub, target: HttpHub) -> None:
        super().__init__(root, veen)
        self.source, self.target = source, target
        self.media = root / "media"
        self.writer = Identity.generate()
        for hub, name in ((source, "admin1"), (target, "admin2")):
            assert hub.admin is not None  # the selftest started the hub
            self.write_identity(name, hub.admin)
        init = ("bridge", "init", "--no-passphrase")
        _, made = self.veen_object(
            *(*init, "--role", "bridge_online", "--out", "z1", "--hub", source.url, "--issuer", "admin1"),
            *("--trust", self.source_id.hex(), "--stream", EXPORT),
        )
        self.veen(
            *(*init, "--role", "bridge_offline", "--out", "z2", "--hub", target.url, "--issuer", "admin2"),
            *("--trust", self.target_id.hex(), "--stream", IMPORT, "--source", self.source_id.hex()),
            *("--source-bridge", made["bridge_id"]),
        )

    @property
    def source_id(self) -> HubId:
        return self.source.known.identity.hub_id

    @property
    def target_id(self) -> HubId:
        return self.target.known.identity.hub_id

    @property
    def online(self) -> Identity:
        return Identity.load(self.root / "z1" / "identity")

    @property
    def offline(self) -> Identity:
        return Identity.load(self.root / "z2" / "identity")

    # --- the steps of an application and of the two operators

    def send(self, bodies: Sequence[str]) -> list[Receipt]:
        """Write events to the export stream, as an application of the source zone; return their receipts."""

        async def work() -> list[Receipt]:
            trust = self.source_id.hex()
            state = self.root / "writer"
            async with connect(self.source.url, self.writer, trust=trust, state=state) as hub:
                assert self.source.admin is not None
                token = mint(self.source.admin, self.writer.client_id, [stream_id(EXPORT)], 3_600)
                await hub.authorize(token)
                stream = hub.stream(EXPORT, to=self.online.recipient)
                return [receipt async for receipt in stream.send_many(bodies)]

        return asyncio.run(work())

    def export(self, name: str) -> str:
        """Export all new events to a folder of the medium; return the folder."""
        folder = str(self.media / name)
        self.veen("bridge", "export", "-c", "z1/bridge.yaml", "--out", folder, "--checkpoint-now", "-q")
        return folder

    def import_(self, *folders: str) -> tuple[int, dict[str, Any]]:
        """Import the bundles of folders; return the exit code and the JSON object."""
        return self.veen_object("bridge", "import", "-c", "z2/bridge.yaml", *folders)

    def reconcile(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Compare the two zones; return the exit code and the JSON object."""
        zones = ("--source", "z1/bridge.yaml", "--target", "z2/bridge.yaml")
        return self.veen_object("bridge", "reconcile", *zones, *arguments)

    def read_export(self) -> list[Message]:
        """Read the export stream of the source zone with the keys of bridge_online."""
        return asyncio.run(_read(self.source.url, self.source_id, self.online, EXPORT))

    def read(self, stream: str) -> list[Message]:
        """Read a stream of the target zone with the keys of bridge_offline."""
        return asyncio.run(_read(self.target.url, self.target_id, self.offline, stream))


async def _read(url: str, hub_id: HubId, reader: Identity, stream: str) -> list[Message]:
    async with connect(url, reader, trust=hub_id.hex()) as hub:
        return [message async for message in hub.stream(stream).read()]


@contextmanager
def bridged_zones(context: CheckContext) -> Iterator[BridgedZones]:
    """Start two hubs and set up a bridge between them; stop them at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="veen-selftest-bridge-") as folder,
        context.own_hub(HUB_LOG).running() as source,
        context.own_hub(HUB_LOG).running() as target,
    ):
        yield BridgedZones(Path(folder), context.fleet.veen, source, target)
