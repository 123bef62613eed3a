"""Where the ``veen`` process starts, and how it ends (``exits.Exit``).

    help asked for, or a bare group      the help on stdout               OK
    the command line is wrong            one line on stderr               USAGE
    a command raises CommandFailed       one line on stderr               the code it carries
    Ctrl-C                               nothing                          INTERRUPTED
    anything else                        the traceback and where it is    BUG

Click on its own ends wrong usage with 2, which scripts read as a network failure here.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

from veen_cli.commands import DiscoveringGroup
from veen_cli.exits import CommandFailed, Exit
from veen_cli.version import version


@click.group(cls=DiscoveringGroup, context_settings={"help_option_names": ["-h", "--help"]})
def veen() -> None:
    """VEEN: an end-to-end encrypted, verifiable message fabric."""


veen.add_command(version)


def main(args: Sequence[str] | None = None) -> None:
    """Run ``veen`` with ``args`` (default: the process's own) and exit."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Run ``veen`` and return its exit code."""
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
    except click.ClickException as error:  # click's own, such as a file that cannot be opened
        return complain(error.format_message(), Exit.USAGE)
    except click.Abort:
        return Exit.INTERRUPTED
    except Exception:  # noqa: BLE001 - the last resort: anything not foreseen is a bug
        click.echo(traceback.format_exc(), err=True, nl=False)
        return complain("this is a bug in VEEN; please report it with the lines above", Exit.BUG)
    return result if isinstance(result, int) else Exit.OK


def complain(message: str, code: int) -> int:
    """Say what is wrong in one line."""
    click.echo("veen: " + " ".join(message.split()), err=True)
    return code


def where_to_look(ctx: click.Context | None) -> str:
    return f"(see '{ctx.command_path if ctx else 'veen'} --help')"
