"""The ``veen`` command: the table of its commands, and the options before them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import click

from veen_cli import __version__
from veen_cli.arguments import completions
from veen_cli.frame.command_groups import CommandGroup, LazyCommand, Plugin
from veen_cli.frame.process import run_command

SECTIONS: Final[Mapping[str, Mapping[str, LazyCommand | Plugin]]] = {
    "Start": {
        "quickstart": LazyCommand(
            "veen_cli.quickstart.command:quickstart",
            "See how VEEN works in a few seconds; every claim is verified.",
        ),
        "keygen": LazyCommand(
            "veen_cli.commands.keygen:keygen", "Create an identity: keys to sign and to receive."
        ),
        "id": LazyCommand(
            "veen_cli.commands.id:id_", "Identities: keys, cards, client_ids, and records in a realm."
        ),
        "context": LazyCommand(
            "veen_cli.commands.context:context", "Named sets of defaults: hub, identity, stream and more."
        ),
        "explain": LazyCommand(
            "veen_cli.commands.explain:explain", "Explain a hub's refusal code or an exit code of veen."
        ),
        "completion": LazyCommand(
            "veen_cli.commands.completion:completion", "Print a completion script for your shell."
        ),
        "version": LazyCommand(
            "veen_cli.commands.version:version", "Show the versions of the installed packages."
        ),
    },
    "Messages": {
        "send": LazyCommand("veen_cli.commands.send:send", "Seal and send one message, or many."),
        "stream": LazyCommand(
            "veen_cli.commands.stream:stream",
            "Read a stream: verify every message, open those sealed to you.",
        ),
        "read": LazyCommand("veen_cli.commands.stream:read", "Read the messages of a stream and end."),
        "tail": LazyCommand("veen_cli.commands.stream:tail", "Read the newest messages of a stream."),
        "streams": LazyCommand(
            "veen_cli.commands.streams:streams", "List the streams that an identity has read or written."
        ),
        "attachment": LazyCommand(
            "veen_cli.commands.attachment:attachment", "Attachments: fetch, open, compare."
        ),
        "resync": LazyCommand(
            "veen_cli.commands.resync:resync", "Verify a whole stream, and settle messages without an answer."
        ),
    },
    "Evidence": {
        "verify": LazyCommand(
            "veen_cli.evidence.verify:verify", "Verify evidence, exports, bundles, cards and tokens offline."
        ),
        "inspect": LazyCommand(
            "veen_cli.evidence.inspect:inspect", "Show the content of any VEEN file; '-' is stdin."
        ),
        "receipt": LazyCommand("veen_cli.evidence.fetch.receipt:receipt", "Receipts: fetch, show, verify."),
        "proof": LazyCommand("veen_cli.evidence.fetch.proof:proof", "Inclusion proofs: fetch, show, verify."),
        "checkpoint": LazyCommand(
            "veen_cli.evidence.fetch.checkpoint:checkpoint", "Checkpoints: fetch, show, verify."
        ),
        "consistency": LazyCommand(
            "veen_cli.evidence.fetch.consistency:consistency", "Consistency proofs: fetch, show, verify."
        ),
        "verify-state": LazyCommand(
            "veen_cli.commands.resync:verify_state",
            "Check what an identity keeps about hubs, without asking them.",
        ),
    },
    "Hubs and networks": {
        "hub": LazyCommand("veen_cli.hub:hub", "Create, run, check and copy a hub."),
        "witness": LazyCommand(
            "veen_cli.witness:witness", "Cosign the checkpoints of logs, and remember them."
        ),
        "console": LazyCommand(
            "veen_cli.commands.console:console", "Show a hub in a browser, which verifies what the hub says."
        ),
        "monitor": LazyCommand(
            "veen_cli.monitor.command:monitor", "Follow the logs of hubs, and prove what contradicts them."
        ),
        "kube": LazyCommand("veen_cli.kube:kube", "Run VEEN networks in Kubernetes."),
        "bridge": Plugin("Move evidence across an air gap; mirror streams between hubs."),
        "selftest": Plugin("Test a hub from outside, through its public API."),
    },
    "Access and realms": {
        "cap": LazyCommand(
            "veen_cli.commands.cap:cap", "Tokens: who may write to which stream, how long and how fast."
        ),
        "pow": LazyCommand("veen_cli.commands.pow:pow_", "Proof of work, for hubs that ask for it."),
        "authority": LazyCommand(
            "veen_cli.overlays.authority:authority", "The primary hub of a stream (FED1)."
        ),
        "revoke": LazyCommand(
            "veen_cli.overlays.control:revoke",
            "Revoke a client key, a token's auth_ref or a token in a realm.",
        ),
        "label-class": LazyCommand(
            "veen_cli.overlays.control:label_class", "The traffic class of a label (LCLASS0)."
        ),
        "schema": LazyCommand("veen_cli.overlays.control:schema", "The meaning of schema ids (META0+)."),
    },
    "Shared state": {
        "fold": LazyCommand(
            "veen_cli.overlays.fold:fold", "Fold a stream with an overlay and show its state."
        ),
        "kv": LazyCommand("veen_cli.overlays.kv:kv", "A map in a stream: get, list, put, delete, watch."),
        "crdt": LazyCommand(
            "veen_cli.overlays.crdt:crdt", "Registers, sets and counters with concurrent writers."
        ),
        "queue": LazyCommand("veen_cli.overlays.queue:queue", "Jobs in a stream: put, take, acknowledge."),
        "snapshot": LazyCommand(
            "veen_cli.overlays.snapshot:snapshot", "Publish the hashes of folded states, and verify them."
        ),
        "spark": Plugin("Verify, fold, query and follow logs of any size on Spark."),
    },
    "Operations and payments": {
        "op": LazyCommand(
            "veen_cli.operations.op:op", "Operations of any kind, and which operation led to which."
        ),
        "wallet": LazyCommand(
            "veen_cli.overlays.wallet:wallet", "Wallets: balances folded from a log, with rules."
        ),
        "pay": LazyCommand(
            "veen_cli.operations.pay:pay", "Ask for an operation and pay for it, in one message."
        ),
        "grant": LazyCommand(
            "veen_cli.operations.grant:grant", "Access grants in a log, and the rules of a domain."
        ),
        "agree": LazyCommand(
            "veen_cli.operations.agree:agree", "Agreements: propose and confirm versions, see the active one."
        ),
        "publish": LazyCommand(
            "veen_cli.operations.publish:publish",
            "Published content: bind files to the log, and compare them.",
        ),
        "recover": LazyCommand(
            "veen_cli.operations.recover:recover",
            "Recovery: guardians replace an identity whose key is lost.",
        ),
    },
    "Services": {
        "rpc": LazyCommand("veen_cli.rpc:rpc", "Remote calls over a stream: serve, call, list."),
        "disc": LazyCommand(
            "veen_cli.discovery:disc", "Directory of hubs, overlays and services: advertise and query."
        ),
        "connect": LazyCommand(
            "veen_cli.discovery.connect:connect",
            "Find a service, check its hub, and set up a connection to it.",
        ),
    },
    "Records and queries": {
        "record": LazyCommand(
            "veen_cli.record:record", "Record events, checkpoint them, and replay them with proofs."
        ),
        "query": LazyCommand(
            "veen_cli.query:query", "Query recorded streams; answers carry their own proof."
        ),
    },
}
"""All commands by heading, in the order in which a new user needs them."""


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"veen {__version__}")
        ctx.exit()


veen = CommandGroup(
    "veen",
    {name: each for part in SECTIONS.values() for name, each in part.items()},
    sections=SECTIONS,
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
