"""The ``veen`` command: the table of its commands, and the options before them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final, NoReturn

import click

from veen_cli.arguments import completions
from veen_cli.frame.command_groups import Group, LazyCommand
from veen_cli.frame.process import run_command

COMMANDS: Final = {
    "quickstart": LazyCommand(
        "veen_cli.quickstart.command:quickstart",
        "See the whole model in a few seconds: a hub, three messages, every claim verified, one bit flipped.",
    ),
    "keygen": LazyCommand(
        "veen_cli.commands.keygen:keygen",
        "Make an identity: keys to sign and to receive, sealed with a passphrase.",
    ),
    "id": LazyCommand("veen_cli.commands.id:id_", "Identities: whom you act as, and how others reach you."),
    "hub": LazyCommand("veen_cli.hub:hub", "Make a hub, run it, look after it, and check what it keeps."),
    "cap": LazyCommand(
        "veen_cli.commands.cap:cap", "Tokens: who may write to which stream, for how long, how fast."
    ),
    "send": LazyCommand(
        "veen_cli.commands.send:send",
        "Seal and send a message, or many; returns when the hub has made it durable.",
    ),
    "stream": LazyCommand(
        "veen_cli.commands.stream:stream", "Read a stream: verified, and opened where it was sealed to you."
    ),
    "attachment": LazyCommand(
        "veen_cli.commands.attachment:attachment", "Attachments: fetch, open, compare."
    ),
    "receipt": LazyCommand("veen_cli.evidence.receipt:receipt", "Receipts: fetch, show, verify."),
    "proof": LazyCommand("veen_cli.evidence.proof:proof", "Inclusion proofs: fetch, show, verify."),
    "checkpoint": LazyCommand("veen_cli.evidence.checkpoint:checkpoint", "Checkpoints: fetch, show, verify."),
    "consistency": LazyCommand(
        "veen_cli.evidence.consistency:consistency", "Consistency proofs: fetch, show, verify."
    ),
    "verify": LazyCommand(
        "veen_cli.evidence.verify:verify",
        "Verify files without a hub: evidence of any kind, exports, identity cards, tokens.",
    ),
    "inspect": LazyCommand(
        "veen_cli.evidence.inspect:inspect",
        "Show the content of any VEEN file: objects, chunks, sequences, keystores; '-' is stdin.",
    ),
    "fold": LazyCommand("veen_cli.overlays.fold:fold", "Fold a stream with an overlay and show its state."),
    "kv": LazyCommand("veen_cli.overlays.kv:kv", "A map in a stream: get, put, delete, watch."),
    "crdt": LazyCommand(
        "veen_cli.overlays.crdt:crdt", "Registers, sets and counters that many may write at once."
    ),
    "queue": LazyCommand("veen_cli.overlays.queue:queue", "Jobs in a stream: put, take, acknowledge."),
    "wallet": LazyCommand(
        "veen_cli.overlays.wallet:wallet", "Wallets: balances folded from a log, and its rules."
    ),
    "snapshot": LazyCommand(
        "veen_cli.overlays.snapshot:snapshot", "States published by their hash, and checked."
    ),
    "authority": LazyCommand(
        "veen_cli.overlays.authority:authority", "Which hub may accept for a stream (FED1)."
    ),
    "revoke": LazyCommand(
        "veen_cli.overlays.control:revoke", "Revoke a client key, a token's auth_ref or a token in a realm."
    ),
    "label-class": LazyCommand(
        "veen_cli.overlays.control:label_class", "What kind of traffic a label carries (LCLASS0)."
    ),
    "schema": LazyCommand("veen_cli.overlays.control:schema", "What schema ids mean (META0+)."),
    "resync": LazyCommand(
        "veen_cli.commands.resync:resync",
        "Bring what this identity knows of a stream up to date, and settle what was left open.",
    ),
    "verify-state": LazyCommand(
        "veen_cli.commands.resync:verify_state",
        "Check everything that an identity remembers of hubs, without asking them.",
    ),
    "pow": LazyCommand("veen_cli.commands.pow:pow_", "Proof of work, where a hub asks for it."),
    "context": LazyCommand(
        "veen_cli.commands.context:context", "Named sets of defaults: which hub, which identity."
    ),
    "explain": LazyCommand(
        "veen_cli.commands.explain:explain",
        "Say what a code means, and what to do: a hub's refusal, or an exit code of veen.",
    ),
    "completion": LazyCommand(
        "veen_cli.commands.completion:completion", "Print a completion script for your shell."
    ),
    "version": LazyCommand("veen_cli.commands.version:version", "Show the installed versions."),
}
"""In the order in which a newcomer meets them."""


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"veen {version('veen-cli')}")
        ctx.exit()


veen = Group(
    "veen",
    COMMANDS,
    help="VEEN: an end-to-end encrypted, verifiable message fabric.",
    params=[
        click.Option(
            ["--context"],
            envvar="VEEN_CONTEXT",
            show_envvar=True,
            shell_complete=completions.contexts,
            help="Use this context for one command (see `veen context --help`).",
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version (`veen version` lists all packages).",
        ),
    ],
    callback=lambda context: None,  # noqa: ARG005 - settings.py reads it
)


def run(args: Sequence[str] | None = None) -> int:
    """Run ``veen`` with ``args`` (default: the process's own) and return its exit code."""
    return run_command(veen, args, name="veen")


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run ``veen`` and exit."""
    sys.exit(run(args))
