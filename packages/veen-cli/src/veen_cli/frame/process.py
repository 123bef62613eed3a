"""Run one click command as a process: error output, exit code, closed and full stdout.

    outcome                                   output                          exit code
    --help, or a group without a command      the help, on stdout             OK
    wrong usage                               an error, on stderr             USAGE
    CommandFailed                             an error, on stderr             the code it carries
    an error of VEEN or of the system         an error, on stderr             by family (``error_report``)
    Ctrl-C                                    nothing                         INTERRUPTED
    the reader of stdout has ended            nothing                         PIPE
    any other exception                       an error that names a report    BUG

An error is one line, ``veen: MESSAGE; ACTION``, or with ``--json`` one JSON object. A server with ``--quiet``
writes it as a log line, as spec-4 §10.3 demands of a container. No traceback is shown: it
is written to a file that the error names, or to stderr if ``VEEN_TRACEBACK`` is set. Click by itself would
end wrong usage with 2, which means a network failure here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import discard_stdout, escape_controls
from veen_cli.frame.start import repair_streams


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """A failure as the user or a program sees it."""

    message: str
    exit_code: int
    action: str | None = None
    reason: str | None = None
    """A stable key: a hub's refusal code such as ``CAP_MISSING``; by default the exit code's name."""

    @property
    def line(self) -> str:
        text = f"{self.message}; {self.action}" if self.action else self.message
        return " ".join(text.split())

    @property
    def json(self) -> str:
        """The report as one line of ASCII JSON, which cannot control a terminal."""
        reason = self.reason or (Exit(self.exit_code).name if self.exit_code in set(Exit) else "FAILED")
        error = {"code": reason, "message": self.message, "action": self.action, "exit_code": self.exit_code}
        return json.dumps({"error": error})


def run_command(
    command: click.Command, args: Sequence[str] | None = None, *, name: str, component: str | None = None
) -> int:
    """Run ``command`` with ``args`` (default: the process's own), print what failed, return the exit code.

    ``component``: the server's name in its log, if the command is one.
    """
    repair_streams()
    args = sys.argv[1:] if args is None else args
    try:
        outcome = _invoke(command, args, name)
        if isinstance(outcome, ErrorReport):
            _print_error(outcome, name, _options(args), component)
            outcome = outcome.exit_code
        return _flush_stdout(outcome)
    except BrokenPipeError:  # the reader of stderr or of stdout has ended
        return discard_stdout()


def _options(args: Sequence[str]) -> set[str]:
    """Return the arguments that can be options, even if the command line does not parse."""
    return set(args[: args.index("--")] if "--" in args else args)


def _print_error(report: ErrorReport, name: str, options: set[str], component: str | None) -> None:
    if component is not None and options & {"-q", "--quiet"}:
        from veen_hub.ops.logs import write_failure  # noqa: PLC0415 - the other commands do not need it

        write_failure(report.line, component=component, role=os.environ.get("VEEN_ROLE", component))
        return
    click.echo(report.json if "--json" in options else escape_controls(f"{name}: {report.line}"), err=True)


def _flush_stdout(code: int) -> int:
    """Flush stdout now: at exit, Python would report a full disk with a traceback."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        discard_stdout()
        return code or Exit.USAGE
    return code


def _invoke(command: click.Command, args: Sequence[str], name: str) -> int | ErrorReport:
    stdout = sys.stdout
    try:
        # Not standalone: click returns the code of ctx.exit() and raises everything else.
        result = command.main(list(args), prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as bare:
        click.echo(bare.format_message())
        return Exit.OK
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else name
        if isinstance(error, click.NoSuchOption) and error.option_name == "--context":
            action = f"write it before the command: `{name} --context NAME COMMAND …`"
            return ErrorReport(f"`{path}` has no option --context", Exit.USAGE, action)
        return ErrorReport(error.format_message().removesuffix("."), Exit.USAGE, f"see `{path} --help`")
    except CommandFailed as error:
        return ErrorReport(error.message, error.code, error.action, error.reason)
    except click.ClickException as error:
        return ErrorReport(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except SystemExit:
        if sys.stdout is stdout:
            raise
        return Exit.PIPE  # click exits if the reader of stdout has ended, for example of a help page
    except Exception as error:  # noqa: BLE001 - the last resort: known families, else a bug
        return report_exception(error, args)
    return result if isinstance(result, int) else Exit.OK


def report_exception(error: Exception, args: Sequence[str]) -> ErrorReport:
    # Imported here: it loads the client, which a command that works may not need.
    from veen_cli.frame.error_report import report_of  # noqa: PLC0415

    if (known := report_of(error)) is not None:
        return known
    # Imported here: only a bug needs them.
    import tempfile  # noqa: PLC0415
    import traceback  # noqa: PLC0415

    message = f"this is a bug in VEEN ({type(error).__name__})"
    if os.environ.get("VEEN_TRACEBACK"):
        click.echo(traceback.format_exc(), err=True, nl=False)
        return ErrorReport(message, Exit.BUG, "report it with the lines above")
    with tempfile.NamedTemporaryFile("w", prefix="veen-bug-", suffix=".txt", delete=False) as report:
        # Only the command's name: its arguments may be a message.
        report.write(f"veen {' '.join(args[:1])}\n{traceback.format_exc()}")
    return ErrorReport(message, Exit.BUG, f"report it with {report.name}")
