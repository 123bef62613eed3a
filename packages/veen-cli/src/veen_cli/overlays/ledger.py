"""``veen wallet balance``, ``ledger`` and ``verify``: read the wallets of a log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields, plural
from veen_cli.overlays.ledger_scope import LedgerScope, scope_options
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream, access_options, text_or_hex
from veen_cli.overlays.wallet import WalletAccount, state_data
from veen_core.ids import AuthRef, ClientId, StreamId
from veen_overlays.fold.event import UNOPENED, Event, MemorySeenKeys, Message
from veen_overlays.identifiers import WalletId
from veen_overlays.schema.record import Record
from veen_overlays.wallet.account import NEVER_OPENED, WalletState
from veen_overlays.wallet.ledger import LEDGER, state_of
from veen_overlays.wallet.rules import NO_RESTRICTION, WalletViolation, violations
from veen_overlays.wallet.settlement import counterparties, halves, unsettled

Streams = Callable[[str | StreamId], OverlayStream]

one_or_all = click.argument("wallet", type=Hex(WalletId), metavar="[WALLET]", required=False)


def _account(wallet: WalletId | None, scope: LedgerScope) -> WalletAccount:
    if wallet is None and scope.ledger is None:
        raise click.UsageError("name a wallet, or a ledger with --ledger.")
    return WalletAccount(wallet or WalletId(bytes(WalletId.SIZE)), scope)


def _lines(wallet: WalletId, state: WalletState) -> list[str]:
    limit = f"{state.pending_daily_spent} of {state.daily_limit} spent in the current day"
    status = "closed" if state.closed else "frozen" if state.frozen else "open"
    return fields(
        {
            "wallet": wallet.hex(),
            "  balance": state.balance,
            "  status": status,
            "  limit": limit if state.daily_limit is not None else None,
            "  lowest": state.lowest if state.lowest < 0 else None,
        }
    )


@command("veen wallet balance WALLET", "veen wallet balance --ledger shop --json")
@one_or_all
@scope_options
@access_options
def balance(out: Output, *, access: OverlayAccess, wallet: WalletId | None, scope: LedgerScope) -> Answer:
    """Show a wallet, or all wallets of a ledger.

    With --quiet only the balance of WALLET is printed.
    """
    account = _account(wallet, scope)
    accounts = access.state(account.stream, account.overlay, account.description)
    if wallet is None:
        states = {WalletId(each): state_of(accounts, each) for each in sorted(accounts)}
        data = [state_data(each, state) for each, state in states.items() if state != NEVER_OPENED]
        lines = [
            line for each, state in states.items() if state != NEVER_OPENED for line in _lines(each, state)
        ]
        return Answer(
            {"ledger": scope.ledger, "wallets": data}, lines or [f"the ledger {scope.ledger} has no wallet"]
        )
    state = state_of(accounts, wallet)
    if not state.exists:
        raise CommandFailed(
            f"wallet {wallet.hex()} was never opened in this stream",
            Exit.USAGE,
            action="check the id, --ledger, and that --reader names the key that opens the stream",
        )
    if out.quiet and not out.as_json:
        click.echo(state.balance)
    return Answer(state_data(wallet, state), _lines(wallet, state))


async def _messages(
    source: OverlayStream, account: WalletAccount, *, must_exist: bool = False
) -> list[Message]:
    """All messages of the stream, in order."""
    messages = [message async for message, _ in source.signed(account.overlay)]
    if must_exist and not messages:
        raise source.missing()
    return messages


def _value(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _record_data(record: Record) -> dict[str, Any]:
    names = [field.name for field in record.codec.fields]
    return {name: _value(found) for name in names if (found := getattr(record, name)) is not None}


def _concerns(record: Any, wallet: WalletId | None) -> bool:
    return wallet is None or wallet in (record.wallet_id, getattr(record, "to_wallet_id", None))


def _line(seq: int, record: Any) -> str:
    at = times.format_utc(getattr(record, "ts", getattr(record, "created_at", 0)))
    kind = record.NAME.removeprefix("wallet.").removesuffix(".v1")
    what = {
        name: getattr(record, name, None) for name in ("amount", "delta", "daily_limit", "currency", "reason")
    }
    data = " ".join(str(value) for value in what.values() if value is not None)
    to = getattr(record, "to_wallet_id", None)
    ref = getattr(record, "ref", None)
    return (
        f"{seq:>4}  {at}  {kind:<9} {data}"
        + (f" to {to.hex()[:12]}…" if to is not None else "")
        + (f" ({text_or_hex(ref)})" if ref is not None else "")
    )


@command("veen wallet ledger WALLET", "veen wallet ledger --ledger shop --json")
@one_or_all
@scope_options
@access_options
def ledger(out: Output, *, access: OverlayAccess, wallet: WalletId | None, scope: LedgerScope) -> Answer:
    """List the events of a wallet or a ledger.

    Replayed and mirrored copies of an event are left out.
    """
    del out
    account = _account(wallet, scope)

    async def work() -> list[Message]:
        async with access.at(account.stream, account.description) as source:
            return await _messages(source, account, must_exist=True)

    seen, found = MemorySeenKeys(), []
    for message in loop.run(work()):
        event = LEDGER.distinct(message, seen)
        if isinstance(event, Event) and _concerns(event.record, wallet):
            found.append(event)
    data = [
        {"stream_seq": each.seq, "schema": each.record.NAME, **_record_data(each.record)} for each in found
    ]
    return Answer({"events": data}, [_line(each.seq, each.record) for each in found])


async def _violations(
    source: OverlayStream, account: WalletAccount
) -> tuple[list[Message], list[WalletViolation]]:
    """The messages of one log, and the violations of its rules and of the deployment's policy."""
    messages, authors = [], {}
    known: dict[tuple[ClientId, AuthRef | None], Collection[bytes]] = {}
    async for message, msg in source.signed(account.overlay):
        messages.append(message)
        if account.scope.policy.operators is not None:
            behind = msg.client_id, msg.auth_ref
            if behind not in known:
                known[behind] = await source.authors_of(msg)
            authors[message] = known[behind]
    if not messages:
        raise source.missing()
    policy = account.scope.policy
    found = violations(messages, policy=policy, authors=lambda message: authors.get(message, ()))
    return messages, list(found)


async def _across(
    streams: Streams, messages: list[Message], wallet: WalletId | None
) -> AsyncIterator[WalletViolation]:
    """Compare the log with the own streams of all wallets that its wallets paid or were paid by."""
    here = halves(messages)
    owned = [wallet] if wallet is not None else [WalletId(each) for each in sorted(here.opened)]
    for other in sorted(counterparties(here)):
        account = WalletAccount(other, LedgerScope(None, NO_RESTRICTION))
        there = halves(await _messages(streams(account.stream), account))
        for own in owned:
            for found in (*unsettled(own, here, other, there), *unsettled(other, there, own, here)):
                yield found


@command("veen wallet verify WALLET --across", "veen wallet verify --ledger shop --json")
@one_or_all
@click.option("--across", is_flag=True, help="Also compare transfers with the streams of the other wallets.")
@scope_options
@access_options
def verify(
    out: Output, *, access: OverlayAccess, wallet: WalletId | None, across: bool, scope: LedgerScope
) -> None:
    """Report every event that breaks the rules.

    Reports overdrafts, exceeded limits, and payments of frozen or closed wallets, each with its message.
    With --policy it also reports unknown currencies, and records that only an operator may send. With
    --across it also reads the streams of all wallets that paid this wallet or were paid by it: every debit
    must have exactly one credit. Ends with exit code 3 if an event breaks a rule, or if your keys do not open
    a message.
    """
    account = _account(wallet, scope)

    async def work() -> tuple[list[Message], list[WalletViolation]]:
        async with access.streams(account.description) as streams:
            messages, reported = await _violations(streams(account.stream), account)
            found = [each for each in reported if wallet is None or each.wallet_id == wallet]
            if across:
                found += [each async for each in _across(streams, messages, wallet)]
            return messages, found

    messages, found = loop.run(work())
    data = [
        {
            "stream_seq": each.seq,
            "id": each.origin.hex(),
            "wallet": each.wallet_id.hex(),
            "code": each.code.value,
            "why": each.why,
        }
        for each in found
    ]
    lines = [
        f"message {each.seq} of {each.wallet_id.hex()[:12]}…: {each.code.value}: {each.why}" for each in found
    ]
    if unopened := sum(message.schema == UNOPENED for message in messages):
        lines.append(f"{unopened} of {len(messages)} messages were not verified: your keys do not open them")
    read = {"messages": len(messages), "unopened": unopened, "holds": not lines, "violations": data}
    out.print_answer(Answer(read, lines or [f"{plural(len(messages), 'message')}, no rule is broken"]))
    if lines:
        raise click.exceptions.Exit(Exit.PROTOCOL)
