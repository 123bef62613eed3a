"""``veen completion``: a script with which a shell completes commands and options."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output

WHERE: Final = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc (after compinit)",
    "fish": "~/.config/fish/completions/veen.fish",
}


@command('eval "$(veen completion bash)"', "veen completion fish > ~/.config/fish/completions/veen.fish")
@click.argument("shell", type=click.Choice(list(WHERE)))
def completion(out: Output, shell: str) -> Answer:
    """Print a completion script for your shell.

    Put `eval "$(veen completion bash)"` into ~/.bashrc, or the same with zsh into ~/.zshrc after compinit;
    for fish, write the script to ~/.config/fish/completions/veen.fish.
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = click.get_current_context().find_root().command
    script = completion_class(root, {}, "veen", "_VEEN_COMPLETE").source()
    if out.quiet and not out.as_json:
        click.echo(script)  # requested data, which --quiet keeps
    return Answer({"shell": shell, "where": WHERE[shell], "script": script}, [script])
