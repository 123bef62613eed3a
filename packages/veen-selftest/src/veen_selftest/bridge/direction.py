"""J3: no identity of the bridge can write back to the source zone (AGB0 4.3, RESOLUTIONS P5)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core.cap import CapToken, mint
from veen_core.ids import HubId
from veen_core.rejection import Code
from veen_core.stream import stream_id
from veen_hub.client import Identity, Refused, connect
from veen_selftest.bridge.zones import EXPORT, IMPORT, BridgedZones, bridged_zones
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext

POLICY_EXIT_CODE: Final = 6
"""Exit code of `veen bridge doctor` if a path may lead back."""
ACCEPTED: Final = "accepted"


def _one_way(context: CheckContext) -> None:
    """Neither role can write to the streams of the other; `doctor` finds a token that would allow it."""
    with bridged_zones(context) as zones:
        online, offline = _token(zones, "z1"), _token(zones, "z2")
        for who, token, hub, hub_id, stream in (
            (zones.online, online, zones.source, zones.source_id, EXPORT),
            (zones.offline, offline, zones.source, zones.source_id, EXPORT),
            (zones.online, online, zones.target, zones.target_id, IMPORT),
        ):
            answer = _answer(hub, hub_id, who, token, stream)
            require_equal(answer, Code.CAP.value, f"answer to a message of a bridge to {stream} (J3)")
        for role, other in (("z1", "z2"), ("z2", "z1")):
            check = ("bridge", "doctor", "-c", f"{role}/bridge.yaml", "--other", f"{other}/bridge.yaml")
            code, found = zones.veen_object(*check)
            require_equal((code, found["one_way"]), (0, True), f"doctor of {role}")
        assert zones.source.admin is not None
        wide = mint(zones.source.admin, zones.online.client_id, [stream_id(EXPORT)], 60)
        (zones.root / "z1" / "role.cap").write_bytes(wide.encode())
        code = zones.run("bridge", "doctor", "-c", "z1/bridge.yaml").returncode
        require_equal(code, POLICY_EXIT_CODE, "exit code of doctor with a token for the export stream")


def _token(zones: BridgedZones, role: str) -> CapToken:
    return CapToken.decode((zones.root / role / "role.cap").read_bytes())


def _answer(hub: HttpHub, hub_id: HubId, who: Identity, token: CapToken, stream: str) -> str:
    """Send a message to a stream, and return the code of the refusal, or ``ACCEPTED``."""

    async def work() -> str:
        async with connect(hub.url, who, trust=hub_id.hex()) as connected:
            try:
                await connected.stream(stream).send("back", cap=token)
            except Refused as exc:
                return exc.code.value
            return ACCEPTED

    return asyncio.run(work())


CHECKS: Final = (Check("bridge.one-way", "AGB0 J3, P5", _one_way),)
