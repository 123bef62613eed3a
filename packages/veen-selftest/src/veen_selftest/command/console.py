"""``veen-selftest``: what ``veen`` does around a command, for those who have only this one."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from veen_selftest.command.selftest import INTERRUPTED, selftest
from veen_selftest.command.target import SelftestError

USAGE, BUG = 1, 70


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run it, say what is wrong in one line, and exit."""
    _replace_closed()
    try:
        code = selftest.main(args, prog_name="veen-selftest", standalone_mode=False)
    except click.UsageError as error:
        code = _complain(f"{error.format_message()} (see 'veen-selftest --help')", USAGE)
    except SelftestError as error:
        code = _complain(error.format_message(), error.exit_code)
    except click.ClickException as error:
        code = _complain(error.format_message(), USAGE)
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except OSError as error:
        code = _complain(": ".join(filter(None, (error.filename, error.strerror or str(error)))), USAGE)
    except Exception as error:  # noqa: BLE001 - the last resort: no traceback reaches a user
        code = _complain(f"this is a bug in VEEN ({type(error).__name__}): report it with {_kept()}", BUG)
    _empty_stdout()
    sys.exit(code if isinstance(code, int) else 0)


def _replace_closed() -> None:
    """What goes to a stdout or stderr that was closed (``>&-``) goes nowhere, not to the next file opened."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - to the very end


def _empty_stdout() -> None:
    """A disk that is full was told of by now: at its exit Python would do it again, in words of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _kept() -> str:
    """The traceback at hand, in a file."""
    with tempfile.NamedTemporaryFile("w", prefix="veen-bug-", suffix=".txt", delete=False) as report:
        report.write(traceback.format_exc())
    return report.name


def _complain(message: str, code: int) -> int:
    click.echo("veen-selftest: " + " ".join(message.split()), err=True)
    return code


if __name__ == "__main__":
    main()
