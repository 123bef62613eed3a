"""``veen pay``: a paid operation, direct or as the agent of another identity (spec-3 §2, §4)."""

from __future__ import annotations

from typing import Any

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import stream_option
from veen_cli.frame.output import Answer, Output
from veen_cli.identity.identity_folder import verify_key_named
from veen_cli.operations.published import Published, publish
from veen_cli.overlays.arguments import JsonMap
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options
from veen_core import cbor
from veen_core.ids import AuthRef, OperationId
from veen_core.stream import stream_id
from veen_overlays.operations.delegation import DelegatedExecution
from veen_overlays.operations.operation import AccountId, IdentityId
from veen_overlays.operations.payment import PaidOperation
from veen_overlays.schema.record import Record


@command(
    'veen pay PAYER PAYEE 40 --type translate --args \'{"text": "hello"}\' -s till --currency EUR',
    "veen pay PAYER PAYEE 40 --type translate -s till --principal alice --via AUTH_REF --via AUTH_REF",
)
@click.argument("payer", type=Hex(AccountId))
@click.argument("payee", type=Hex(AccountId))
@click.argument("amount", type=Integer(0))
@click.option("--type", "operation_type", required=True, help="Name of the business operation.")
@click.option("--args", "arguments", type=JsonMap(), default="{}", help="Its arguments, as a JSON object.")
@click.option("--currency", help="Unit of the amount [default: the domain's].")
@click.option("--reference", type=Hex(OperationId), help="An id outside VEEN, such as that of an invoice.")
@click.option("--parent", type=Hex(OperationId), help="The operation_id that this operation responds to.")
@click.option("--ttl", type=times.Duration(1), help="How long after its receipt it may be performed.")
@click.option("--principal", help="Act with the authority of this identity, by the grants of --via.")
@click.option(
    "--via",
    multiple=True,
    type=Hex(AuthRef),
    metavar="AUTH_REF",
    help="Grants from the principal to you, in order.",
)
@stream_option
@access_options
def pay(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    payer: AccountId,
    payee: AccountId,
    amount: int,
    operation_type: str,
    arguments: dict[str, Any],
    currency: str | None,
    reference: OperationId | None,
    parent: OperationId | None,
    ttl: int | None,
    principal: str | None,
    via: tuple[AuthRef, ...],
) -> Answer:
    """Ask for an operation and pay for it, in one message.

    PAYER and PAYEE are account ids; the id of a wallet is one. The payment counts if the rules of the stream
    allow it at its position in the log. Otherwise the command ends with exit code 6, and neither the payment
    nor the operation takes place.
    """
    del out
    if (principal is None) == bool(via):
        raise click.UsageError("--principal and --via must be given together.")
    paid = PaidOperation(
        operation_type=operation_type,
        operation_args=arguments,
        payer_account=payer,
        payee_account=payee,
        amount=amount,
        currency_code=currency,
        operation_reference=reference,
        parent_operation_id=parent,
        ttl_seconds=ttl,
    )

    async def work() -> Published:
        async with access.at(stream) as source:
            record: Record = paid
            if principal is not None:
                agent = await source.stream.client_id()
                record = _delegated(paid, IdentityId(verify_key_named(principal)), IdentityId(agent), via)
            return await publish(source, record)

    done = loop.run(work())
    balance = done.state.accounts[bytes(payer)].state.balance
    data = {**done.data(stream_id(stream)), "amount": amount, "balance": balance}
    lines = [f"paid {amount}; the balance is {balance}", f"  operation {done.operation_id.hex()}"]
    return Answer(data, lines)


def _delegated(
    paid: PaidOperation, principal: IdentityId, agent: IdentityId, chain: tuple[AuthRef, ...]
) -> DelegatedExecution:
    return DelegatedExecution(
        principal_identity=principal,
        agent_identity=agent,
        delegation_chain=chain,
        operation_schema=paid.SCHEMA,
        operation_body=cbor.decode(paid.encode()),
        parent_operation_id=paid.parent_operation_id,
    )
