"""``veen hub checkpoint``, ``anchor`` and ``retention``: requests of the hub's admin (RESOLUTIONS H19)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_core.checkpoint import Checkpoint
from veen_core.ids import Label
from veen_hub.client import Admin, Conflict, Hub, NotFound

T = TypeVar("T")
RETRY_SECONDS = 1.1
"""Longer than one second, the resolution of the time in signed requests."""
stream_option = click.option(
    "--stream", "-s", help="Only this stream [default: all streams with new messages]."
)


def as_admin(target: Target, work: Callable[[Hub, Admin], Awaitable[T]]) -> T:
    """Run ``work`` with the admin's key of the connection's identity."""

    async def run() -> T:
        async with target.connect() as hub:
            identity = hub.connection.identity
            assert identity is not None
            admin = hub.admin(identity.signing_key)
            with target.out.progress("waiting for the hub"):
                try:
                    return await work(hub, admin)
                except Conflict:
                    # Another call signed the same bytes in the same second; the hub accepts them once (H19).
                    await asyncio.sleep(RETRY_SECONDS)
                    return await work(hub, admin)

    return loop.run(run())


def _label(hub: Hub, stream: str | None) -> Label | None:
    return hub.stream(stream).label() if stream is not None else None


def _answer(verb: str, made: tuple[Checkpoint, ...]) -> Answer:
    rows: list[dict[str, Any]] = [
        {
            "label": each.label_curr.hex(),
            "upto_seq": each.upto_seq,
            "mmr_root": each.mmr_root.hex(),
            "checkpoint": json.loads(each.to_json()),
        }
        for each in made
    ]
    lines = [
        f"{verb} label {each.label_curr.hex()[:16]}… up to {each.upto_seq}: {each.mmr_root.hex()}"
        for each in made
    ]
    return Answer({"checkpoints": rows}, lines or [f"no label has grown since it was {verb}"])


@command("veen hub checkpoint --client admin", "veen hub checkpoint --client admin --stream orders --json")
@stream_option
@connects
def checkpoint(out: Output, *, target: Target, stream: str | None) -> Answer:
    """Have the hub sign checkpoints now.

    The hub also makes checkpoints by count and by time. Ask for one before you export evidence.
    """
    del out
    return _answer("checkpointed", as_admin(target, lambda hub, admin: admin.checkpoint(_label(hub, stream))))


@command("veen hub anchor --client admin")
@stream_option
@connects
def anchor(out: Output, *, target: Target, stream: str | None) -> Answer:
    """Have the hub anchor its newest checkpoints now.

    The hub's hub.yaml says where: in a file ledger, or in a stream of another hub.
    """
    del out
    try:
        made = as_admin(target, lambda hub, admin: admin.anchor(_label(hub, stream)))
    except NotFound as exc:
        # No anchor is configured, or the label does not exist: the hub's message includes the next step.
        raise CommandFailed(
            f"the hub refused, {exc.code.value}: {exc.hub_message}", Exit.REFUSED, reason=exc.code.value
        ) from None
    return _answer("anchored", made)


@command("veen hub retention --client admin")
@connects
def retention(out: Output, *, target: Target) -> Answer:
    """Have the hub apply its retention rules now.

    Payloads are pruned by the rules of hub.yaml; receipts and proofs stay.
    """
    del out
    chunks, entries = as_admin(target, lambda _hub, admin: admin.retention())
    return Answer(
        {"chunks": chunks, "entries": entries},
        [f"pruned the payloads of {plural(entries, 'entry', 'entries')} in {plural(chunks, 'chunk')}"],
    )
