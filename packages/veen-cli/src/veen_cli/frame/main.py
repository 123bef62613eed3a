"""Where the ``veen`` process starts, and how it ends (``exits.Exit``).

    help asked for, or a bare group      the help on stdout                 OK
    the command line is wrong            one line on stderr                 USAGE
    a command raises CommandFailed       one line on stderr                 the code it carries
    one of VEEN's errors, or the system's  one line on stderr               by family (``failures``)
    Ctrl-C                               nothing                            INTERRUPTED
    whoever reads stdout has left        nothing                            PIPE (also in ``frame``)
    anything else                        one line that names a report       BUG

Click on its own ends wrong usage with 2, which scripts read as a network failure here. No traceback is
shown: it goes into a file that the last line names, or to stderr if ``VEEN_TRACEBACK`` is set.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from veen_cli.arguments import completions
from veen_cli.frame.command_groups import Group, Own
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import harmless, silenced

COMMANDS: Final = {
    "quickstart": Own(
        "veen_cli.quickstart.command:quickstart",
        "See the whole model in a few seconds: a hub, three messages, every claim verified, one bit flipped.",
    ),
    "keygen": Own(
        "veen_cli.commands.keygen:keygen",
        "Make an identity: keys to sign and to receive, sealed with a passphrase.",
    ),
    "id": Own("veen_cli.commands.id:id_", "Identities: whom you act as, and how others reach you."),
    "hub": Own("veen_cli.hub:hub", "Make a hub, run it, look after it, and check what it keeps."),
    "cap": Own("veen_cli.commands.cap:cap", "Tokens: who may write to which stream, for how long, how fast."),
    "send": Own(
        "veen_cli.commands.send:send",
        "Seal and send a message, or many; returns when the hub has made it durable.",
    ),
    "stream": Own(
        "veen_cli.commands.stream:stream", "Read a stream: verified, and opened where it was sealed to you."
    ),
    "attachment": Own("veen_cli.commands.attachment:attachment", "Attachments: fetch, open, compare."),
    "receipt": Own("veen_cli.evidence.receipt:receipt", "Receipts: fetch, show, verify."),
    "proof": Own("veen_cli.evidence.proof:proof", "Inclusion proofs: fetch, show, verify."),
    "checkpoint": Own("veen_cli.evidence.checkpoint:checkpoint", "Checkpoints: fetch, show, verify."),
    "consistency": Own(
        "veen_cli.evidence.consistency:consistency", "Consistency proofs: fetch, show, verify."
    ),
    "verify": Own(
        "veen_cli.evidence.verify:verify",
        "Say what files are and whether they hold: evidence of any kind, exports, cards, tokens.",
    ),
    "inspect": Own(
        "veen_cli.evidence.inspect:inspect",
        "Show any VEEN bytes in words: objects, chunks, sequences, keystores; '-' is stdin.",
    ),
    "fold": Own("veen_cli.overlays.fold:fold", "Fold a stream with an overlay and show its state."),
    "kv": Own("veen_cli.overlays.kv:kv", "A map in a stream: get, put, delete, watch."),
    "crdt": Own("veen_cli.overlays.crdt:crdt", "Registers, sets and counters that many may write at once."),
    "queue": Own("veen_cli.overlays.queue:queue", "Jobs in a stream: put, take, acknowledge."),
    "wallet": Own("veen_cli.overlays.wallet:wallet", "Wallets: balances folded from a log, and its rules."),
    "snapshot": Own("veen_cli.overlays.snapshot:snapshot", "States published by their hash, and checked."),
    "authority": Own("veen_cli.overlays.authority:authority", "Which hub may accept for a stream (FED1)."),
    "revoke": Own(
        "veen_cli.overlays.control:revoke", "Revoke a client key, a token's auth_ref or a token in a realm."
    ),
    "label-class": Own(
        "veen_cli.overlays.control:label_class", "What kind of traffic a label carries (LCLASS0)."
    ),
    "schema": Own("veen_cli.overlays.control:schema", "What schema ids mean (META0+)."),
    "resync": Own(
        "veen_cli.commands.resync:resync",
        "Bring what this identity knows of a stream up to date, and settle what was left open.",
    ),
    "verify-state": Own(
        "veen_cli.commands.resync:verify_state",
        "Check everything that an identity remembers of hubs, without asking them.",
    ),
    "pow": Own("veen_cli.commands.pow:pow_", "Proof of work, where a hub asks for it."),
    "context": Own("veen_cli.commands.context:context", "Named sets of defaults: which hub, which identity."),
    "explain": Own(
        "veen_cli.commands.explain:explain",
        "Say what a code means, and what to do: a hub's refusal, or an exit code of veen.",
    ),
    "completion": Own("veen_cli.commands.completion:completion", "Print a completion script for your shell."),
    "version": Own("veen_cli.commands.version:version", "Show the installed versions."),
}
"""In the order in which a newcomer meets them."""

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
            help="Use this context for one command (see 'veen context').",
        )
    ],
    callback=lambda context: None,  # noqa: ARG005 - settings.py reads it
)


def main(args: Sequence[str] | None = None) -> None:
    """Run ``veen`` with ``args`` (default: the process's own) and exit."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Run ``veen`` and return its exit code."""
    replace_closed()
    try:
        return emptied(ended(args))
    except BrokenPipeError:  # whoever was to read what is wrong has left
        return silenced()


def replace_closed() -> None:
    """What goes to a stdout or stderr that was closed (``>&-``) goes nowhere, not to the next file opened."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - to the very end


def emptied(code: int) -> int:
    """Nothing is left for Python to write at its exit: on a full disk it would fail in words of its own."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        silenced()
        return code or Exit.USAGE
    return code


def ended(args: Sequence[str] | None) -> int:
    """Run the command, say what is wrong, and return the code for it."""
    stdout = sys.stdout
    try:
        # Not standalone: click returns the code of ctx.exit() and raises the rest.
        result = veen.main(args, prog_name="veen", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as bare:
        click.echo(bare.format_message())
        return Exit.OK
    except click.UsageError as error:
        return complain(f"{error.format_message()} {where_to_look(error.ctx)}", Exit.USAGE)
    except CommandFailed as error:
        return complain(error.format_message(), error.code)
    except click.ClickException as error:  # click's own, or one of another distribution's commands
        return complain(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except SystemExit:
        if sys.stdout is stdout:
            raise
        return Exit.PIPE  # click wraps a stdout that nobody reads, and leaves: from a help page, say
    except Exception as error:  # noqa: BLE001 - the last resort: known families, else a bug
        return judged(error)
    return result if isinstance(result, int) else Exit.OK


def judged(error: Exception) -> int:
    # Imported here: it loads the client, which a working command line may not need.
    from veen_cli.frame.failures import judge  # noqa: PLC0415

    if (known := judge(error)) is not None:
        return complain(*known)
    name = type(error).__name__
    if os.environ.get("VEEN_TRACEBACK"):
        click.echo(traceback.format_exc(), err=True, nl=False)
        return complain(f"this is a bug in VEEN ({name}): report it with the lines above", Exit.BUG)
    with tempfile.NamedTemporaryFile("w", prefix="veen-bug-", suffix=".txt", delete=False) as report:
        # The command's name alone: what follows it may be a message.
        report.write(f"veen {' '.join(sys.argv[1:2])}\n{traceback.format_exc()}")
    return complain(f"this is a bug in VEEN ({name}): report it with {report.name}", Exit.BUG)


def complain(message: str, code: int) -> int:
    """Say what is wrong in one line."""
    click.echo(harmless("veen: " + " ".join(message.split())), err=True)
    return code


def where_to_look(ctx: click.Context | None) -> str:
    return f"(see '{ctx.command_path if ctx else 'veen'} --help')"
