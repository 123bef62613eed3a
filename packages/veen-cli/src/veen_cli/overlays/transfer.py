"""``veen wallet transfer``: one event that debits the source and credits the destination (WAL 5.5).

On a shared ledger one message does both. If each wallet has its own stream, the event is written to the
source's stream and then mirrored into the destination's, with the msg_id of the first message as its parent.
If the command fails in between, the same command with ``--transfer-id`` resumes: it finds the debit in the
log and does not repeat it. If the rules forbid the debit because another producer was faster, the destination
is not credited.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from veen_cli.arguments import completions
from veen_cli.arguments.identifiers import Hex
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.overlays.ledger_scope import LedgerScope, scope_options
from veen_cli.overlays.overlay_stream import (
    OverlayAccess,
    OverlayStream,
    View,
    access_options,
    refused,
    sent_data,
)
from veen_cli.overlays.wallet import WalletAccount, amount_argument, state_data, wallet_argument
from veen_core.errors import VeenError
from veen_core.ids import LeafHash, StreamId
from veen_core.receipt import Receipt
from veen_overlays.fold.event import Event
from veen_overlays.identifiers import TransferId, WalletId
from veen_overlays.wallet.account import WalletState
from veen_overlays.wallet.ledger import Accounts, debit_key, state_of
from veen_overlays.wallet.records import Transfer
from veen_overlays.wallet.rules import WalCode


async def _check_destination(source: OverlayStream, account: WalletAccount, credit_to: str | None) -> None:
    """Refuse a credit that would be lost: to a closed or unopened wallet, or sealed to the wrong key."""
    async with source.view(account.overlay) as view:
        summary = (await view.state()).summary
    state = state_of(summary.inner, account.wallet)
    if state.closed:
        raise refused(WalCode.CLOSED, "the destination is closed")
    if not state.exists and not summary.foreign:
        raise refused(WalCode.NOT_OPEN, "the destination was never opened")
    if not state.exists and credit_to is None and source.access.to is None:
        raise CommandFailed(
            "your keys do not open the destination's stream, so its owner could not open a credit sealed to "
            "you; nothing was sent",
            Exit.USAGE,
            action="name the owner's card with --credit-to",
        )


async def _resumed_debit(
    view: View[Accounts], account: WalletAccount, wanted: Transfer
) -> tuple[Transfer, LeafHash] | None:
    """The debit that an earlier call left in the log under this transfer_id; None if there is none."""
    position = await view.first_use(debit_key(account.wallet, wanted.transfer_id))
    if position is None:
        return None
    message = await view.message(position)
    event = account.overlay.decode(message)
    assert isinstance(event, Event)  # the view's key index has events only
    found = event.record
    assert isinstance(found, Transfer)
    if replace(found, ts=wanted.ts) != wanted:
        raise CommandFailed(
            f"message {position} of the log is a different transfer with this --transfer-id",
            Exit.USAGE,
            action="name its wallets and its amount, or leave --transfer-id out to make a new transfer",
        )
    await account.check_allowed(view, position, found)
    return found, LeafHash(message.origin)


async def _pay(
    at_stream: Callable[[StreamId], OverlayStream],
    payer: WalletAccount,
    payee: WalletAccount,
    record: Transfer,
    credit_to: str | None,
    *,
    resumes: bool,
) -> tuple[LeafHash, Receipt | None, WalletState]:
    """Debit the payer, mirror the credit if the payee has its own stream, return the payer's new state."""
    source = at_stream(payer.stream)
    if payer.wallet != payee.wallet:
        await _check_destination(at_stream(payee.stream), payee, credit_to)
    async with source.view(payer.overlay) as view:
        found = await _resumed_debit(view, payer, record) if resumes else None
        if found is None:
            debit = (await payer.send(source, view, record)).leaf_hash
        else:
            record, debit = found
        state = await payer.state(view)
    credit = None
    if payer.stream != payee.stream:
        try:
            credit = await at_stream(payee.stream).send(record, parent=debit, to=credit_to)
        except VeenError as exc:
            raise CommandFailed(
                f"the payer is debited but the payee is not credited yet ({exc.message})",
                Exit.REFUSED,
                action=f"run the command again with --transfer-id {record.transfer_id.hex()}",
            ) from exc
    return debit, credit, state


@command(
    "veen wallet transfer WALLET TO_WALLET 40 --ledger shop",
    "veen wallet transfer WALLET TO_WALLET 40 --transfer-id TRANSFER_ID",
)
@wallet_argument
@click.argument("to_wallet", type=Hex(WalletId))
@amount_argument
@click.option(
    "--transfer-id", type=Hex(TransferId), help="Resume a transfer that was debited but not credited."
)
@click.option(
    "--credit-to",
    shell_complete=completions.files,
    help="Seal the credit to the payee: a folder, card, or X25519 key.",
)
@scope_options
@access_options
def transfer(
    out: Output,
    *,
    access: OverlayAccess,
    wallet: WalletId,
    to_wallet: WalletId,
    amount: int,
    transfer_id: TransferId | None,
    credit_to: str | None,
    scope: LedgerScope,
) -> Answer:
    """Pay from one wallet to another.

    Refused with exit code 6 for the same reasons as a withdrawal, and if the destination is the same wallet,
    is closed or was never opened. If the destination has its own stream, the event is mirrored into it,
    sealed to the same reader or to the key that --credit-to names.
    """
    del out
    payer, payee = WalletAccount(wallet, scope), WalletAccount(to_wallet, scope)
    chosen = transfer_id or TransferId(os.urandom(TransferId.SIZE))

    async def work() -> tuple[Transfer, LeafHash, Receipt | None, WalletState]:
        async with access.streams() as at_stream:
            record = Transfer(
                wallet_id=wallet,
                to_wallet_id=to_wallet,
                amount=amount,
                ts=at_stream(payer.stream).now,
                transfer_id=chosen,
            )
            resumes = transfer_id is not None
            return record, *await _pay(at_stream, payer, payee, record, credit_to, resumes=resumes)

    record, debit, credit, state = loop.run(work())
    data: dict[str, Any] = {
        "transfer_id": chosen.hex(),
        "to_wallet": to_wallet.hex(),
        "amount": amount,
        "id": debit.hex(),
        "credit": sent_data(record, credit, payee.stream.hex()) if credit is not None else None,
        **state_data(wallet, state),
    }
    lines = [f"paid {amount}; the balance is {state.balance}", f"  transfer {chosen.hex()}"]
    return Answer(data, lines)
