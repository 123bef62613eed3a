"""What every command has: the session's options, and Spark's errors in one line with veen's exit codes."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from veen_core.errors import DecodeError
from veen_core.ids import HubId
from veen_spark.errors import ClusterUnreachable, SparkSetupError
from veen_spark.session.master import LOCAL
from veen_spark.session.session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USAGE, NETWORK, PROTOCOL, REFUSED = 1, 2, 3, 4
_RAISED: Final = re.compile(r"^(?:pyspark\S*: )?veen_\w+(?:\.\w+)*\.(\w+): (.+)$", re.MULTILINE)
"""The last line of a worker's traceback, inside what Spark raises."""
_CODES: Final = {
    "SparkSetupError": USAGE,
    "ConfigError": USAGE,
    "Unreachable": NETWORK,
    "Refused": REFUSED,
}
"""Of our errors by name; any other is of the protocol."""
HELP: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
F = TypeVar("F", bound=Callable[..., Any])


class ExampleCommand(click.Command):
    """A command that shows how it is used."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class SparkCommandError(click.ClickException):
    """One line for a person, one code for a script."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it off the instance


def new_folder(target: Path | None, otherwise: str = "") -> None:
    """Refuse what is there already, before hours of work and not after them."""
    if target is not None and target.exists():
        raise SparkCommandError(f"{target} is there already: choose another folder{otherwise}", USAGE)


def hub_id(text: str) -> HubId:
    """A hub's id in hex, from the command line."""
    try:
        return HubId.from_hex(text)
    except DecodeError as exc:
        raise click.BadParameter(str(exc)) from None


def _setting(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if bad := [name for name, equals, _ in pairs if not equals or not name]:
        raise click.BadParameter(f"want NAME=VALUE, found {bad[0]}")
    return {name: value for name, _, value in pairs}


def _absolute(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(os.path.abspath, values))


log_paths: Final = click.argument("paths", nargs=-1, required=True, callback=_absolute)
"""By absolute name: executors, and the server of Spark Connect, have other working folders."""
OPTIONS: Final = (
    click.option(
        "--master",
        default=LOCAL,
        show_default=True,
        envvar="VEEN_SPARK_MASTER",
        help="local[N], spark://…, k8s://…, yarn, or sc://… (Spark Connect).",
    ),
    click.option(
        "--conf", multiple=True, callback=_setting, metavar="NAME=VALUE", help="A setting of Spark's."
    ),
    click.option("--verbose", is_flag=True, help="Spark's own log on stderr, instead of a progress bar."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    click.option("--quiet", "-q", is_flag=True, help="Print nothing that was not asked for."),
)


def session_options(function: F) -> F:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@contextmanager
def session(master: str, conf: dict[str, str], *, verbose: bool) -> Iterator[SparkSession]:
    """A session for one command, or the one that the process has; whatever fails in it ends as one line."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - loads pyspark

    found = SparkSession.getActiveSession()
    if not verbose:
        _hush()
    with one_line_errors():
        spark = start(master, app_name="veen spark", verbose=verbose, config=conf)
        try:
            yield spark
        finally:
            if found is None:
                spark.stop()


def _hush() -> None:
    """What fails is told in one line: pyspark would log a bad query, and py4j Ctrl-C, with their stacks."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - loads pyspark

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())


@contextmanager
def one_line_errors() -> Iterator[None]:
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415 - loads pyspark

    try:
        yield
    except PySparkException as exc:
        raise command_error(str(exc)) from exc
    except Py4JJavaError as exc:  # of the JVM's errors, those that pyspark has no class for
        raise command_error(str(exc.java_exception.toString())) from exc
    except Py4JError as exc:
        raise SparkCommandError("Spark's Java process is gone (--verbose shows its log)", USAGE) from exc
    except ClusterUnreachable as exc:
        raise SparkCommandError(str(exc), NETWORK) from exc
    except SparkSetupError as exc:
        raise SparkCommandError(str(exc), USAGE) from exc


def command_error(text: str) -> SparkCommandError:
    """The error of ours inside Spark's, or the first line of Spark's own."""
    if found := _RAISED.findall(text):
        name, message = found[-1]
        return SparkCommandError(message, _CODES.get(name, PROTOCOL))
    first = next((line for line in text.splitlines() if line.strip()), "no message")
    return SparkCommandError(f"Spark: {first} (--verbose shows its log)", USAGE)


def show(found: dict[str, Any]) -> None:
    click.echo(json.dumps(found, ensure_ascii=False))
