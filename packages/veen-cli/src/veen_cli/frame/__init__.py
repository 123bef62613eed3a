"""The command kit: what every command group of ``veen`` shares, also those of other distributions.

veen-selftest, veen-spark and veen-bridge import exactly this module; ``veen`` finds their commands by
entry point (``veen.commands``). A command written with the kit:

    from veen_cli.frame import Answer, CommandFailed, Exit, Output, command

    @command("veen bridge run --source URL --target URL")
    @click.option("--source", required=True, help="Hub to read from.")
    def run(out: Output, *, source: str) -> Answer:
        '''Copy new messages from one hub to another.'''
        ...
        return Answer({"copied": 3}, ["copied 3 messages"])

The kit adds ``--json``, ``--quiet`` and ``--help`` with the examples, prints the answer, handles a closed or
full stdout and Ctrl-C, and turns every exception into one line or one JSON object with an exit code.

Each name is imported on first use: importing this module costs nothing, so ``veen --help`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veen_cli.arguments.numbers import Integer, Seconds
    from veen_cli.arguments.object_files import writable
    from veen_cli.arguments.passphrase import Passphrase, passphrase_option
    from veen_cli.arguments.private_files import refuse_if_shared
    from veen_cli.arguments.times import Duration, format_utc
    from veen_cli.arguments.tls_files import load_tls
    from veen_cli.frame.command_class import Command, command
    from veen_cli.frame.command_groups import CommandGroup, LazyCommand
    from veen_cli.frame.connection import Target, connects, witness_policy_file, witnesses_option
    from veen_cli.frame.exits import CommandFailed, Exit
    from veen_cli.frame.loop import run as run_loop
    from veen_cli.frame.output import Answer, Output, Progress, escape_controls, fields, json_text, plural
    from veen_cli.frame.process import run_command
    from veen_cli.frame.settings import parse_hub_url
    from veen_cli.frame.start import start_process
    from veen_cli.identity.identity_folder import Folder, new_secrets
    from veen_storage import ViewStore
    from veen_storage.copies.export import verify_hub_export

__all__ = [
    "Answer",
    "Command",
    "CommandFailed",
    "CommandGroup",
    "Duration",
    "Exit",
    "Folder",
    "Integer",
    "LazyCommand",
    "Output",
    "Passphrase",
    "Progress",
    "Seconds",
    "Target",
    "ViewStore",
    "command",
    "connects",
    "escape_controls",
    "fields",
    "format_utc",
    "json_text",
    "load_tls",
    "new_secrets",
    "parse_hub_url",
    "passphrase_option",
    "plural",
    "refuse_if_shared",
    "run_command",
    "run_loop",
    "start_process",
    "verify_hub_export",
    "witness_policy_file",
    "witnesses_option",
    "writable",
]

if not TYPE_CHECKING:  # mypy must refuse names that are not listed above
    _MODULES = {
        "veen_cli.arguments.numbers": ("Integer", "Seconds"),
        "veen_cli.arguments.object_files": ("writable",),
        "veen_cli.arguments.passphrase": ("Passphrase", "passphrase_option"),
        "veen_cli.arguments.private_files": ("refuse_if_shared",),
        "veen_cli.arguments.times": ("Duration", "format_utc"),
        "veen_cli.arguments.tls_files": ("load_tls",),
        "veen_cli.frame.command_class": ("Command", "command"),
        "veen_cli.frame.command_groups": ("CommandGroup", "LazyCommand"),
        "veen_cli.frame.connection": ("Target", "connects", "witness_policy_file", "witnesses_option"),
        "veen_cli.frame.exits": ("CommandFailed", "Exit"),
        "veen_cli.frame.output": (
            "Answer",
            "Output",
            "Progress",
            "escape_controls",
            "fields",
            "json_text",
            "plural",
        ),
        "veen_cli.frame.process": ("run_command",),
        "veen_cli.frame.settings": ("parse_hub_url",),
        "veen_cli.frame.start": ("start_process",),
        "veen_cli.identity.identity_folder": ("Folder", "new_secrets"),
        "veen_storage": ("ViewStore",),
        "veen_storage.copies.export": ("verify_hub_export",),
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name == "run_loop":
            return import_module("veen_cli.frame.loop").run
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULE_OF[name]), name)
