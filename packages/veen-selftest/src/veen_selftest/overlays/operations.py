"""Paid operations at the hub: grants and revocations decide which of them count (spec-3 §2, §3)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core.hashing import H
from veen_core.ids import StreamId, UnixTime
from veen_core.stream import stream_id
from veen_hub.client import Identity, Stream
from veen_overlays.operations.access import AccessGrant, AccessRevoke
from veen_overlays.operations.operation import AccountId, IdentityId
from veen_overlays.operations.overlays import ACCOUNTS, state_after
from veen_overlays.operations.payment import Domain, PaidOperation
from veen_overlays.operations.refusal import Refusal
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.overlay_reader import TTL_SEC, connected, folded, writable_hub
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext

CURRENCY: Final = "EUR"


def _operations(context: CheckContext) -> None:
    """Payments count within the amount of their grant and before its revocation, for every reader."""
    asyncio.run(_grant_and_pay(context, writable_hub(context)))


async def _grant_and_pay(context: CheckContext, hub: HttpHub) -> None:
    admin, agent, reader = (Identity.generate(context.rng.randbytes) for _ in range(3))
    name = context.stream_name("till")
    payer, payee = AccountId(H(b"payer" + context.secret)), AccountId(H(b"payee" + context.secret))

    def pay(amount: int) -> PaidOperation:
        return PaidOperation(
            operation_type="selftest",
            operation_args={},
            payer_account=payer,
            payee_account=payee,
            amount=amount,
        )

    async with connected(hub, admin) as at_admin, connected(hub, agent) as at_agent:
        authority: Stream = at_admin.stream(name, readers=reader.dh_keys)
        spender: Stream = at_agent.stream(name, readers=reader.dh_keys)
        await spender.send(pay(5))
        # Messages are signed with the stream's client_id (KEX0.2), not with the identity's key.
        chief, subject = IdentityId(await authority.client_id()), IdentityId(await spender.client_id())
        domain = Domain(
            authorities=(chief,), negative_balances=True, grants_required=True, currency_code=CURRENCY
        )
        now = (await authority.send(domain)).hub_ts
        await spender.send(pay(1))
        grant = AccessGrant(
            subject_identity=subject,
            allowed_stream_ids=(StreamId(stream_id(name)),),
            expiry_time=UnixTime(now + TTL_SEC),
            maximum_amount=50,
            currency_code=CURRENCY,
        )
        await authority.send(grant)
        for amount in (40, 11, 10):
            await spender.send(pay(amount))
        await authority.send(AccessRevoke(subject_identity=subject))
        await spender.send(pay(0))
    async with connected(hub, reader) as connection:
        state = state_after(await folded(connection, name, ACCOUNTS, reader.dh_keys))
    outcomes = [each.refusal for each in state.outcomes() if each.name == PaidOperation.NAME]
    expected = ["funds", Refusal.NO_GRANT, "", Refusal.AMOUNT, "", Refusal.NO_GRANT]
    require_equal(outcomes, [str(each) for each in expected], "outcomes of six payments (spec-3 2.4, 3.3)")
    balances = {key: account.state.balance for key, account in state.accounts.items()}
    require_equal(balances, {bytes(payer): -50, bytes(payee): 50}, "balances of the accounts")


CHECKS: Final = (Check("overlay.operations", "spec-3 2.4, 3.3, A1", _operations),)
