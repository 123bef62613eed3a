"""The Spark session of a command: its options, its start-up messages, and Spark's errors in one line."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from veen_cli.frame import CommandFailed, Exit, Output
from veen_core.errors import DecodeError
from veen_core.ids import HubId
from veen_spark.errors import ClusterUnreachable
from veen_spark.session.master import LOCAL
from veen_spark.session.session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMINDER_SEC: Final = 15.0
"""Seconds between the notes that Spark is still starting; only if stderr is not a terminal."""
SHOW_LOG: Final = "run the command with --verbose to see Spark's log"
TOO_BUSY: Final = "run the command again when the machine is less busy"
_RAISED: Final = re.compile(r"^(?:pyspark\S*: )?veen_\w+(?:\.\w+)*\.(\w+): (.+)$", re.MULTILINE)
"""The last line of an executor's traceback, inside Spark's exception."""
_CODES: Final = {
    "SparkSetupError": Exit.USAGE,
    "ConfigError": Exit.USAGE,
    "Unreachable": Exit.NETWORK,
    "Refused": Exit.REFUSED,
}
"""Exit codes by the name of the error; every other VEEN error exits with ``Exit.PROTOCOL``."""
F = TypeVar("F", bound=Callable[..., Any])


def hub_id(text: str) -> HubId:
    """Parse a hub's id in hex."""
    try:
        return HubId.from_hex(text)
    except DecodeError as exc:
        raise click.BadParameter(str(exc)) from None


def _settings(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if bad := [name for name, equals, _ in pairs if not equals or not name]:
        raise click.BadParameter(f"{bad[0]!r} is not of the form NAME=VALUE")
    return {name: value for name, _, value in pairs}


OPTIONS: Final = (
    click.option(
        "--master",
        default=LOCAL,
        show_default=True,
        envvar="VEEN_SPARK_MASTER",
        help="Where Spark runs: local[N], spark://…, k8s://…, yarn, or sc://… (Spark Connect).",
    ),
    click.option(
        "--conf",
        multiple=True,
        callback=_settings,
        metavar="NAME=VALUE",
        help="A Spark setting; may be repeated.",
    ),
    click.option("--verbose", is_flag=True, help="Show Spark's log on stderr instead of a progress bar."),
)


def session_options(function: F) -> F:
    """Add the options of ``OPTIONS`` to a command."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@contextmanager
def session(out: Output, master: str, conf: dict[str, str], *, verbose: bool) -> Iterator[SparkSession]:
    """Start a session for one command and stop it at the end, or reuse the session of this process."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - loads pyspark

    existing = SparkSession.getActiveSession()
    if not verbose:
        _silence_pyspark()
    with one_line_errors():
        with nullcontext() if existing is not None else starting(out, master):
            spark = start(master, app_name="veen spark", verbose=verbose, config=conf)
        try:
            yield spark
        finally:
            if existing is None:
                spark.stop()


@contextmanager
def starting(out: Output, master: str) -> Iterator[None]:
    """Report on stderr that Spark is starting, again every ``REMINDER_SEC``, and the time it took."""
    began, ready = time.monotonic(), threading.Event()

    def remind() -> None:
        while not ready.wait(REMINDER_SEC):
            out.note(f"still starting Spark after {time.monotonic() - began:.0f} s")

    out.note(f"starting Spark on {master}; this takes 10 to 20 s, and longer on a busy machine")
    reminder = threading.Thread(target=remind, daemon=True)
    if not sys.stderr.isatty():
        reminder.start()
    try:
        with out.progress("starting Spark"):
            yield
    finally:
        ready.set()
    out.note(f"Spark is ready after {time.monotonic() - began:.1f} s")


def _silence_pyspark() -> None:
    """Silence the stack traces that pyspark logs for an invalid query and py4j logs for Ctrl-C."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - loads pyspark

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Convert Spark's exceptions to ``CommandFailed``."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415 - loads pyspark

    try:
        yield
    except PySparkException as exc:
        raise command_error(str(exc)) from exc
    except Py4JJavaError as exc:  # JVM errors for which pyspark has no class
        raise command_error(str(exc.java_exception.toString())) from exc
    except Py4JError as exc:
        raise CommandFailed("Spark's Java process has ended", Exit.USAGE, SHOW_LOG) from exc
    except ClusterUnreachable as exc:
        raise CommandFailed(exc.message, Exit.NETWORK, exc.action) from exc


def command_error(text: str) -> CommandFailed:
    """Return the VEEN error quoted in a Spark exception, else the first line of the exception."""
    if found := _RAISED.findall(text):
        name, message = found[-1]
        return CommandFailed(message, _CODES.get(name, Exit.PROTOCOL))
    if "Python worker failed to connect back" in text:
        return CommandFailed(
            "Spark's Python process did not start within the 10 s that Spark allows", Exit.USAGE, TOO_BUSY
        )
    first = next((line for line in text.splitlines() if line.strip()), "no message")
    return CommandFailed(f"Spark: {first}", Exit.USAGE, SHOW_LOG)
