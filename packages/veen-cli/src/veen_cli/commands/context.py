"""``veen context``: named sets of defaults for ``--hub``, ``--client`` and other options."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from veen_cli.arguments import completions
from veen_cli.frame import settings
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.frame.settings import SavedContext

COMMANDS: Final = {
    "add": LazyCommand("veen_cli.commands.context:add", "Create a context, or replace it."),
    "use": LazyCommand("veen_cli.commands.context:use", "Choose the context to use from now on."),
    "show": LazyCommand("veen_cli.commands.context:show", "Show a context, by default the current one."),
    "list": LazyCommand("veen_cli.commands.context:list_", "List all contexts; the current one is marked."),
    "remove": LazyCommand("veen_cli.commands.context:remove", "Remove a context."),
}
context = CommandGroup(
    "context", COMMANDS, path="context", help="Named sets of defaults: hub, identity, stream and more."
)
PATHS: Final = ("client", "data_dir", "ca", "cert", "cert_key", "witnesses")


def _absolute(text: str | None) -> str | None:
    return str(Path(text).expanduser().absolute()) if text is not None else None


@command(
    "veen context add work --hub https://hub.example --trust HUB_ID --client ~/.veen/me --use",
    "veen context add local --hub http://127.0.0.1:8080 --data-dir ./hub",
)
@click.argument("name")
@click.option("--hub", help="Address of the hub.")
@click.option("--trust", help="hub_id or first hub_pk of the hub, in hex.")
@click.option("--client", shell_complete=completions.folders, help="Folder of the identity to act as.")
@click.option(
    "--data-dir", shell_complete=completions.folders, help="Data directory, for commands that work on one."
)
@click.option("--stream", help="Stream to send to and read from.")
@click.option(
    "--ca",
    shell_complete=completions.files,
    help="PEM file of the authority that signed the hub's certificate.",
)
@click.option(
    "--cert", shell_complete=completions.files, help="PEM file of the client certificate to present."
)
@click.option("--cert-key", shell_complete=completions.files, help="PEM file of that certificate's key.")
@click.option(
    "--witnesses",
    metavar="FILE",
    shell_complete=completions.files,
    help="Witness policy file for the hub's log.",
)
@click.option(
    "--successor", metavar="URL", help="Address of the hub that replaces this one after a signed handover."
)
@click.option("--use", "use_it", is_flag=True, help="Make it the current context.")
def add(out: Output, *, name: str, use_it: bool, **given: str | None) -> Answer:
    """Create a context, or replace it."""
    if not name.isprintable():
        raise click.UsageError("NAME must be one line of printable characters.")
    if not name.strip() or all(each is None for each in given.values()):
        raise click.UsageError("a context needs a name and at least one option.")
    for key in ("ca", "cert", "cert_key", "witnesses"):
        if (file := given[key]) is not None and not Path(file).expanduser().is_file():
            raise click.UsageError(f"{settings.flag(key)} {file} does not exist.")
    made = SavedContext(
        hub=settings.parse_hub_url(hub) if (hub := given["hub"]) is not None else None,
        trust=settings.parse_trust(given["trust"]),
        stream=given["stream"],
        successor=(
            settings.parse_hub_url(successor, "--successor")
            if (successor := given["successor"]) is not None
            else None
        ),
        **{key: _absolute(given[key]) for key in PATHS},
    )
    contexts = settings.load().with_one(name, made)
    if use_it or contexts.current is None:
        contexts = settings.Contexts(current=name, named=contexts.named)
    settings.save(contexts)
    used = contexts.current == name
    for flag, path in (("--client", made.client), ("--data-dir", made.data_dir)):
        if path is not None and not Path(path).is_dir():
            out.note(f"note: {flag} {path} does not exist yet")
    return Answer(
        {"name": name, "in_use": used, **made.as_dict()},
        [
            f"context {name}{' (current)' if used else ''}",
            *fields({f"  {k}": v for k, v in made.as_dict().items()}),
        ],
    )


@command("veen context use work")
@click.argument("name", shell_complete=completions.contexts)
def use(out: Output, name: str) -> Answer:
    """Choose the context to use from now on."""
    del out
    contexts = settings.load()
    contexts.get(name)
    settings.save(settings.Contexts(current=name, named=contexts.named))
    return Answer({"name": name}, [f"using context {name}"])


@command("veen context show", "veen context show work --json")
@click.argument("name", required=False, shell_complete=completions.contexts)
def show(out: Output, *, name: str | None) -> Answer:
    """Show a context, by default the current one.

    The current context is set by --context, else by VEEN_CONTEXT, else by `veen context use`.
    """
    del out
    contexts = settings.load()
    name = name if name is not None else settings.current_name(contexts)
    if name is None:
        raise CommandFailed(
            "there is no current context",
            Exit.USAGE,
            "choose one with `veen context use NAME`, or see `veen context list`",
        )
    found = contexts.get(name)
    return Answer(
        {"name": name, "in_use": name == settings.current_name(contexts), **found.as_dict()},
        [f"context {name}", *fields({f"  {key}": value for key, value in found.as_dict().items()})],
    )


@command("veen context list", name="list")
def list_(out: Output) -> Answer:
    """List all contexts; the current one is marked."""
    del out
    contexts = settings.load()
    lines = []
    for name, each in sorted(contexts.named.items()):
        lines.append(f"{'*' if name == contexts.current else ' '} {name}")
        lines += fields({f"    {key}": value for key, value in each.as_dict().items()})
    data = {name: each.as_dict() for name, each in sorted(contexts.named.items())}
    return Answer(
        {"current": contexts.current, "contexts": data},
        lines or ["there are no contexts; create one with `veen context add NAME --hub URL`"],
    )


@command("veen context remove work")
@click.argument("name", shell_complete=completions.contexts)
def remove(out: Output, name: str) -> Answer:
    """Remove a context."""
    del out
    contexts = settings.load()
    contexts.get(name)
    settings.save(contexts.without(name))
    return Answer({"name": name}, [f"removed context {name}"])
