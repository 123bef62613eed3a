"""``veen wallet transfer``: one event, debited at its source and credited once at its destination (WAL 5.5).

On a shared ledger the one event does both. Where each wallet has its own stream, the event is written to
the source's, then mirrored into the destination's with the first one's msg_id as its parent. If that fails
in between, the same call with ``--transfer-id`` goes on: the debit is found, and counts once. A debit that
another producer's event has overtaken, so that it should not stand there, is not credited elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NamedTuple

import click

from veen_cli.arguments import completions
from veen_cli.arguments.identifiers import Hex
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.overlays.ledger_scope import LedgerScope, scope_options
from veen_cli.overlays.overlay_stream import Access, OverlayStream, access_options, refused, sent_data
from veen_cli.overlays.wallet import (
    WalletAccount,
    amount_argument,
    state_data,
    wallet_argument,
)
from veen_core.errors import VeenError
from veen_core.ids import LeafHash, StreamId
from veen_core.receipt import Receipt
from veen_overlays.fold.event import Event, MemorySeenKeys
from veen_overlays.identifiers import TransferId, WalletId
from veen_overlays.wallet.account import State
from veen_overlays.wallet.ledger import LEDGER, state_of
from veen_overlays.wallet.records import Transfer
from veen_overlays.wallet.rules import WalCode


class _Debit(NamedTuple):
    """A transfer as the source's log has it."""

    position: int
    record: Transfer
    msg_id: LeafHash


async def _found(origin: OverlayStream, account: WalletAccount, wanted: TransferId) -> _Debit | None:
    """One that is in the log already: the first with this id counts."""
    seen = MemorySeenKeys()
    async with aclosing(origin.signed(account.overlay)) as signed:
        async for message, _ in signed:
            event = LEDGER.distinct(message, seen)
            record = event.record if isinstance(event, Event) else None
            if isinstance(record, Transfer) and record.transfer_id == wanted:
                return _Debit(message.seq, record, LeafHash(message.origin))
    return None


async def _check_destination(origin: OverlayStream, account: WalletAccount, credit_to: str | None) -> None:
    """A credit to a closed or unopened wallet would be lost, and so would one that its owner cannot open."""
    async with origin.view(account.overlay) as view:
        summary = (await view.state()).summary
    state = state_of(summary.inner, account.wallet)
    if state.closed:
        raise refused(WalCode.CLOSED, "the destination is closed for good")
    if not state.exists and not summary.foreign:
        raise refused(WalCode.NOT_OPEN, "the destination was never opened")
    if not state.exists and credit_to is None and origin.access.to is None:
        raise CommandFailed(
            "your keys do not open the destination's stream, and its owner would not open a credit sealed to "
            "you: name the owner's card with --credit-to; nothing was sent",
            Exit.USAGE,
        )


async def _debit(
    origin: OverlayStream, account: WalletAccount, record: Transfer, *, again: bool
) -> tuple[Transfer, LeafHash]:
    """Emitted once: one that an earlier call left is taken up as it is, if it is the same.

    Only who goes on with an id has the log read for it; one just drawn is in no log.
    """
    before = await _found(origin, account, record.transfer_id) if again else None
    if before is None:
        return record, (await account.send(origin, record)).leaf_hash
    if replace(before.record, ts=record.ts) != record:
        raise CommandFailed("--transfer-id: the log has another transfer under this id", Exit.USAGE)
    async with origin.view(account.overlay) as view:
        await account.check_stands(view, before.position, before.record)
    return before.record, before.msg_id


async def _pay(
    at_stream: Callable[[StreamId], OverlayStream],
    source: WalletAccount,
    to: WalletAccount,
    record: Transfer,
    credit_to: str | None,
    *,
    again: bool,
) -> tuple[LeafHash, Receipt | None, State]:
    """The debit; the mirrored credit where the destination has a stream of its own; the source then."""
    here = at_stream(source.stream)
    if source.wallet != to.wallet:
        await _check_destination(at_stream(to.stream), to, credit_to)
    record, debit = await _debit(here, source, record, again=again)
    credit = None
    if source.stream != to.stream:
        try:
            credit = await at_stream(to.stream).send(record, parent=debit, to=credit_to)
        except VeenError as exc:
            raise CommandFailed(
                f"debited but not credited yet ({exc}): run it again with "
                f"--transfer-id {record.transfer_id.hex()}",
                Exit.REFUSED,
            ) from exc
    return debit, credit, await source.state(here)


@command(
    "veen wallet transfer WALLET TO_WALLET 40 --ledger shop",
    "veen wallet transfer WALLET TO_WALLET 40 --transfer-id TRANSFER_ID",
)
@wallet_argument
@click.argument("to_wallet", type=Hex(WalletId))
@amount_argument
@click.option("--transfer-id", type=Hex(TransferId), help="Go on with one that failed half-way.")
@click.option(
    "--credit-to",
    shell_complete=completions.files,
    help="Seal the credit to its owner: a folder, card, or X25519 key.",
)
@scope_options
@access_options
def transfer(
    out: Output,
    *,
    access: Access,
    wallet: WalletId,
    to_wallet: WalletId,
    amount: int,
    transfer_id: TransferId | None,
    credit_to: str | None,
    scope: LedgerScope,
) -> Answer:
    """Pay from one wallet to another.

    Refused with exit code 6 as a withdrawal is, to oneself, or to a wallet that is closed or was never
    opened. Where the destination has a stream of its own, the event is mirrored into it, sealed as the rest
    is or to whom --credit-to names.
    """
    del out
    source, to = WalletAccount(wallet, scope), WalletAccount(to_wallet, scope)
    chosen = transfer_id or TransferId(os.urandom(TransferId.SIZE))

    async def work() -> tuple[Transfer, LeafHash, Receipt | None, State]:
        async with access.streams() as at_stream:
            record = Transfer(
                wallet_id=wallet,
                to_wallet_id=to_wallet,
                amount=amount,
                ts=at_stream(source.stream).now,
                transfer_id=chosen,
            )
            again = transfer_id is not None
            return record, *await _pay(at_stream, source, to, record, credit_to, again=again)

    record, debit, credit, state = loop.run(work())
    data: dict[str, Any] = {
        "transfer_id": chosen.hex(),
        "to_wallet": to_wallet.hex(),
        "amount": amount,
        "id": debit.hex(),
        "credit": sent_data(record, credit, to.stream.hex()) if credit is not None else None,
        **state_data(wallet, state),
    }
    lines = [f"paid {amount}; the balance is {state.balance}", f"  transfer {chosen.hex()}"]
    return Answer(data, lines)
