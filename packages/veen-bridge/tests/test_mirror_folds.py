"""Folds over mirrored streams: equal states on both hubs, and every event once (ID 12.1, WALBR0)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_bridge.transfer import Mode
from veen_core.ids import UnixTime
from veen_hub.client import CapRefused, Hub, Identity
from veen_overlays.control.records import Revocation, RevokedId, revocation_stream
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import CtxId, TransferId, realm_id, wallet_id
from veen_overlays.schema.record import Record
from veen_overlays.wallet import LEDGER
from veen_overlays.wallet.records import Deposit, Open, Transfer

from .mirror_fixtures import (
    BRIDGE,
    SOURCE_READER,
    TARGET_READER,
    HubProcess,
    folded_stream,
    mirroring,
    read_all,
    run,
    serving,
    settings,
    talking,
    write_secrets,
)

REALM = realm_id("shop")
OWNERS = CtxId(b"\x01" * 32), CtxId(b"\x02" * 32)
ANN, BEN = (wallet_id(REALM, owner, "EUR") for owner in OWNERS)


def wallet_events() -> list[Record]:
    opened = [
        Open(
            wallet_id=w, realm_id=REALM, ctx_id=CtxId(bytes([n]) * 32), currency="EUR", created_at=UnixTime(1)
        )
        for n, w in ((1, ANN), (2, BEN))
    ]
    paid = Deposit(wallet_id=ANN, amount=100, ts=UnixTime(2))
    moved = [
        Transfer(
            wallet_id=ANN,
            to_wallet_id=BEN,
            amount=7,
            ts=UnixTime(3),
            transfer_id=TransferId(bytes([n]) * 32),
        )
        for n in range(5)
    ]
    return [*opened, paid, *moved]


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubProcess, HubProcess]]:
    root = tmp_path_factory.mktemp("hubs")
    with serving(root / "source") as source, serving(root / "target") as target:
        yield source, target


async def folded(hub: Hub, stream: str, overlay: Overlay[Any]) -> Any:
    return (await folded_stream(hub, stream, overlay)).view


async def send_events(source: HubProcess, stream: str) -> int:
    events = wallet_events()
    async with talking(source) as here:
        async for _ in here.stream(stream, readers=(SOURCE_READER,)).send_many(events):
            pass
    return len(events)


@pytest.mark.parametrize("mode", [Mode.WRAP, Mode.RESEAL])
def test_wallet_balances_are_equal_on_both_hubs(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path, mode: Mode
) -> None:
    source, target = hubs
    stream = f"wallets {mode}"

    async def work() -> None:
        count = await send_events(source, stream)
        async with (
            mirroring(await settings(source, target, tmp_path, stream, mode=mode)),
            talking(source) as here,
            talking(target) as there,
        ):
            await read_all(there, stream, count)
            balances = await folded(here, stream, LEDGER)
            assert await folded(there, stream, LEDGER) == balances
        amounts = {wallet: state["balance"] for wallet, state in balances.items()}
        assert amounts == {ANN: 65, BEN: 35}

    run(work())


def test_transfers_mirrored_twice_and_in_two_modes_are_credited_once(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def work() -> None:
        count = await send_events(source, "twice")
        blind = await settings(source, target, tmp_path / "blind", "twice=copies")
        seeing = await settings(source, target, tmp_path / "seeing", "twice=copies", mode=Mode.RESEAL)
        async with talking(target) as there:
            # A blind bridge does not recognise resealed copies, so it sends its own.
            async with mirroring(seeing):
                await read_all(there, "copies", count)
            async with mirroring(blind):
                await read_all(there, "copies", 2 * count)
            async with talking(source) as here:
                assert await folded(there, "copies", LEDGER) == await folded(here, "twice", LEDGER)

    run(work())


async def send_for_ever(hub: Hub) -> None:
    while True:
        await hub.stream("orders").send("after")


def test_a_tenants_policy_follows_mirrored_admin_streams_while_the_authority_is_down(tmp_path: Path) -> None:
    """FED1, KEX1+: the tenant reads its own copies of the realm's streams, so it needs no authority."""
    key = write_secrets(
        tmp_path / "realm", Identity(signing_key=BRIDGE.signing_key, dh_keys=(TARGET_READER,))
    )
    realm = {"id": REALM.hex(), "key": str(key / "secrets.cbor"), "refresh_ms": 50}
    admin = revocation_stream(REALM).hex()

    async def work(authority: HubProcess, tenant: HubProcess) -> None:
        async with talking(tenant, "alice") as alice, talking(tenant, "bob") as bob:
            await alice.stream("orders").send("before")
            device = await alice.stream("orders").client_id()
            async with talking(authority, "admin") as here:
                lost = Revocation(kind="client-id", target=RevokedId(device), ts=UnixTime(1), reason="lost")
                await here.stream(admin, readers=(TARGET_READER,)).send(lost)
            async with mirroring(await settings(authority, tenant, tmp_path / "state", admin)):
                with pytest.raises(CapRefused, match="REVOKED"):
                    await send_for_ever(alice)
            authority.kill()
            with pytest.raises(CapRefused, match="REVOKED"):
                await alice.stream("orders").send("still revoked")
            await bob.stream("orders").send("another device")

    with (
        serving(tmp_path / "authority") as authority,
        serving(tmp_path / "tenant", settings={"level": "hardened", "realm": realm}) as tenant,
    ):
        run(work(authority, tenant))
