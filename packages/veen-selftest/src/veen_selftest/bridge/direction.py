"""J3: no identity of the bridge can write back to the source zone (AGB0 4.3, RESOLUTIONS P5)."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from veen_core.cap import CapToken, mint
from veen_core.ids import HubId
from veen_core.stream import stream_id
from veen_hub.client import Identity, Refused, connect
from veen_selftest.bridge.zones import EXPORT, IMPORT, BridgedZones, bridged_zones
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext

POLICY: Final = 6


def _one_way(context: CheckContext) -> None:
    """Neither role's token lets it write to the other's streams, and doctor finds a token that would."""
    with bridged_zones(context) as zones:
        online, offline = _token(zones, "z1"), _token(zones, "z2")
        for who, token, hub, hub_id, stream in (
            (zones.online, online, zones.source, zones.source_id, EXPORT),
            (zones.offline, offline, zones.source, zones.source_id, EXPORT),
            (zones.online, online, zones.target, zones.target_id, IMPORT),
        ):
            require(_is_refused(hub, hub_id, who, token, stream), f"a bridge may write to {stream} (J3)")
        for role, other in (("z1", "z2"), ("z2", "z1")):
            check = ("bridge", "doctor", "-c", f"{role}/bridge.yaml", "--other", f"{other}/bridge.yaml")
            require_equal(json.loads(zones.veen(*check, "--json"))["one_way"], True, f"doctor of {role}")
        assert zones.source.admin is not None
        wide = mint(zones.source.admin, zones.online.client_id, [stream_id(EXPORT)], 60)
        (zones.root / "z1" / "role.cap").write_bytes(wide.encode())
        code = zones.run("bridge", "doctor", "-c", "z1/bridge.yaml").returncode
        require_equal(code, POLICY, "exit code of doctor with a token for the export stream")


def _token(zones: BridgedZones, role: str) -> CapToken:
    return CapToken.decode((zones.root / role / "role.cap").read_bytes())


def _is_refused(hub: HttpHub, hub_id: HubId, who: Identity, token: CapToken, stream: str) -> bool:
    async def work() -> bool:
        async with connect(hub.url, who, trust=hub_id.hex()) as connected:
            try:
                await connected.stream(stream).send("back", cap=token)
            except Refused:
                return True
            return False

    return asyncio.run(work())


CHECKS: Final = (Check("bridge.one-way", "AGB0 J3, P5", _one_way),)
