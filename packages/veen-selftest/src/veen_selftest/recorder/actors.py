"""Principals: events are attributed to the keys that wrote them, and roles are separate (SDR0 I3, 3.2.3)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core.cap import CapToken
from veen_core.ids import ClientId
from veen_hub.client import Identity, Refused, connect
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds
from veen_selftest.recorder.site import AUTH, ORDERS, RecorderSite, logins, orders, recorder_site
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext


def _attribution(context: CheckContext) -> None:
    """The events of a principal are those that its key has signed; others are kept and marked."""
    with recorder_site(context) as site:
        site.emit("door", logins(6))
        site.emit("shop", orders(4))
        shop, door = _identity(site, "shop"), _identity(site, "door")
        _send(site, shop, ORDERS, _claim(door.client_id))
        _, found = site.admin("actors")
        rows = found["actors"]
        for who, count in ((door, 6), (shop, 4)):
            mine = [
                each for each in rows if each["principal_id"] == who.client_id.hex() and each["attributed"]
            ]
            require_equal(sum(each["events"] for each in mine), count, "attributed events (I3)")
        marked = [each for each in rows if not each["attributed"]]
        require_equal(
            [(each["principal_id"], each["events"]) for each in marked],
            [(door.client_id.hex(), 1)],
            "unattributed events",
        )


def _isolation(context: CheckContext) -> None:
    """A producer appends to its own streams only, and the administrator appends no events."""
    with recorder_site(context) as site:
        site.emit("door", logins(1))
        for who, stream in (("door", ORDERS), ("shop", AUTH), ("admin", AUTH)):
            writer = _identity(site, who)
            token = CapToken.decode((site.root / who / "role.cap").read_bytes())
            refused = _is_refused(site, writer, token, stream)
            require(refused, f"{who} may write to {stream} (SDR0 3.2.3)")
        own = ("--identity", "door/identity", "--profile", "recorder.yaml", "--out", "both")
        hub = ("--hub", site.hub.url, "--trust", site.hub.known.identity.hub_id.hex())
        code = site.run("record", "init", "--role", "recorder_admin", *own, *hub).returncode
        require_equal(code, 1, "exit code of making a producer recorder_admin")


def _identity(site: RecorderSite, who: str) -> Identity:
    return Identity.load(site.root / who / "identity")


def _claim(principal: ClientId) -> RecordEvent:
    return RecordEvent(
        subject_id="user:mallory",
        principal_id=principal,
        event_type="order",
        event_time=UnixMilliseconds(1),
        origin="shop",
        payload=None,
    )


def _send(site: RecorderSite, who: Identity, stream: str, record: RecordEvent) -> None:
    async def work() -> None:
        reader = _identity(site, "admin").recipient
        token = CapToken.decode((site.root / "shop" / "role.cap").read_bytes())
        hub_id = site.hub.known.identity.hub_id.hex()
        async with connect(site.hub.url, who, trust=hub_id, state=site.root / "shop/identity/state") as hub:
            await hub.stream(stream, to=reader).send(record, cap=token)

    asyncio.run(work())


def _is_refused(site: RecorderSite, who: Identity, token: CapToken, stream: str) -> bool:
    async def work() -> bool:
        async with connect(site.hub.url, who, trust=site.hub.known.identity.hub_id.hex()) as hub:
            try:
                await hub.stream(stream).send("beyond the role", cap=token)
            except Refused:
                return True
            return False

    return asyncio.run(work())


CHECKS: Final = (
    Check("recorder.attribution", "SDR0 I3, P10", _attribution),
    Check("recorder.isolation", "SDR0 3.2.3", _isolation),
)
