"""The reference of all commands: Markdown pages, generated from the commands themselves.

    python -m veen_cli.commands.reference docs/reference/cli

A page begins with text written by hand, which this program keeps; everything after ``MARKER`` is generated.
Pages for commands of other distributions are written only if these are installed. Tests compare the pages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from veen_cli.frame.command_class import Command
from veen_cli.frame.exits import MEANINGS
from veen_cli.frame.main import veen

MARKER: Final = "<!-- Generated below by `python -m veen_cli.commands.reference docs/reference/cli`. -->"
PAGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "start": ("Getting started", ("quickstart", "context", "explain", "completion", "version")),
    "identities": ("Identities", ("keygen", "id", "verify-state")),
    "hub": ("Hubs", ("hub", "console")),
    "witness": ("Witnesses and monitors", ("witness", "monitor")),
    "tokens": ("Tokens and proof of work", ("cap", "pow")),
    "messages": (
        "Messages",
        ("send", "read", "tail", "stream", "streams", "attachment", "resync"),
    ),
    "evidence": (
        "Evidence",
        ("receipt", "proof", "checkpoint", "consistency", "verify", "inspect"),
    ),
    "overlays": ("Overlays", ("fold", "kv", "crdt", "queue", "wallet", "snapshot")),
    "rpc": ("Calls", ("rpc",)),
    "discovery": ("Discovery", ("disc", "connect")),
    "operations": ("Operations", ("grant", "pay", "agree", "publish", "recover", "op")),
    "record": ("Recorder", ("record",)),
    "query": ("Queries", ("query",)),
    "realm": ("Realm administration", ("authority", "revoke", "label-class", "schema")),
    "kube": ("Kubernetes", ("kube",)),
    "bridge": ("Bridge", ("bridge",)),
    "selftest": ("Selftest", ("selftest",)),
    "spark": ("Spark", ("spark",)),
}
"""File name, title and commands of each page, in the order of the overview."""
EPILOG_COLUMNS: Final = 100
SHARED_OPTIONS: Final = {"--json", "--quiet", "--help"}
CONNECTION_OPTIONS: Final = {
    "--hub",
    "--trust",
    "--witnesses",
    "--client",
    "--ca",
    "--cert",
    "--cert-key",
    "--wait",
    "--passphrase-file",
}
"""Described once, in the overview."""


def root_context() -> click.Context:
    return click.Context(veen, info_name="veen", **veen.context_settings)


def page_commands(name: str) -> list[str]:
    """Return the commands of a page that are installed here, and commands that no page lists on "start"."""
    listed = {command for _, commands in PAGES.values() for command in commands}
    installed = veen.list_commands(root_context())
    extra = [each for each in installed if each not in listed] if name == "start" else []
    return [each for each in PAGES[name][1] if each in installed] + extra


def generate_index() -> str:
    """Return the generated part of the overview: pages, commands and exit codes."""
    lines = dict(veen.lines())
    parts = ["## Commands", ""]
    for name, (title, commands) in PAGES.items():
        parts += [f"### [{title}]({name}.md)", "", "| command | |", "|---|---|"]
        parts += [f"| `veen {each}` | {veen.plugins.get(each) or lines[each]} |" for each in commands]
        parts += [""]
    parts += ["## Connection options", "", "Every command that talks to a hub has these options.", ""]
    send = veen.get_command(root_context(), "send")
    assert send is not None
    options = [each for each in send.params if CONNECTION_OPTIONS & set(each.opts)]
    ctx = click.Context(send, info_name="send", parent=root_context(), **send.context_settings)
    rows = [_describe_option(each, ctx) for each in options if isinstance(each, click.Option)]
    parts += ["| option | |", "|---|---|", *(row for row in rows if row is not None), ""]
    parts += ["## Exit codes", "", "| code | name | meaning |", "|---|---|---|"]
    parts += [f"| {int(code)} | `{code.name}` | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(parts).rstrip() + "\n"


def generate_page(name: str) -> str:
    """Return the generated part of a page."""
    ctx = root_context()
    parts: list[str] = []
    for each in page_commands(name):
        command = veen.get_command(ctx, each)
        assert command is not None
        parts += _describe(
            command, click.Context(command, info_name=each, parent=ctx, **command.context_settings), 2
        )
    return "\n".join(parts).rstrip() + "\n"


def _describe(command: click.Command, ctx: click.Context, level: int) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield from _describe_command(command, ctx, level)
        return
    yield from (f"{'#' * level} `{ctx.command_path}`", "", command.help or "", "")
    for name in command.list_commands(ctx):
        inner = command.get_command(ctx, name)
        assert inner is not None
        context = click.Context(inner, info_name=name, parent=ctx, **inner.context_settings)
        yield from _describe(inner, context, level + 1)


def _describe_command(command: click.Command, ctx: click.Context, level: int) -> Iterator[str]:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    yield from (f"{'#' * level} `{ctx.command_path}`", "", "```text", usage, "```", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    connects = {name for each in options for name in each.opts} >= CONNECTION_OPTIONS
    if connects:
        options = [each for each in options if not CONNECTION_OPTIONS & set(each.opts)]
    rows = [row for each in options if (row := _describe_option(each, ctx)) is not None]
    rows += ["| [connection options](index.md#connection-options) | |"] if connects else []
    if rows:
        yield from ("| option | |", "|---|---|", *rows, "")
    yield from ("```text", *_examples(command, ctx), "```", "")


def _examples(command: click.Command, ctx: click.Context) -> list[str]:
    """Return the examples; those of a plain click command are in its epilog."""
    if isinstance(command, Command) and command.examples:
        return list(command.examples)
    formatter = click.HelpFormatter(width=EPILOG_COLUMNS)
    command.format_epilog(ctx, formatter)
    return formatter.getvalue().strip("\n").splitlines()


def _describe_option(option: click.Option, ctx: click.Context) -> str | None:
    if SHARED_OPTIONS & set(option.opts):
        return None
    record = option.get_help_record(ctx)
    assert record is not None
    names, text = record
    bar = "\\|"  # an unescaped bar would end the table cell
    return f"| `{names.replace('|', bar)}` | {' '.join(text.split()).replace('|', bar)} |"


def update(text: str, generated: str) -> str:
    """Replace everything after the marker; add the marker to a page without one."""
    head = text.partition(MARKER)[0].rstrip()
    return f"{head}\n\n{MARKER}\n\n{generated}"


def main(folder: Path) -> None:
    """Rewrite the pages in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index": generate_index()}
    pages |= {name: generate_page(name) for name in PAGES if page_commands(name)}
    for name, generated in pages.items():
        path = folder / f"{name}.md"
        title = "The `veen` command" if name == "index" else PAGES[name][0]
        before = path.read_text(encoding="utf-8") if path.exists() else f"# {title}\n"
        path.write_text(update(before, generated), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
