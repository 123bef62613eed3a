"""``veen spark …``: one module a command, imported when it is run."""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import click


class Where(NamedTuple):
    """A command's module, the command in it, and its line in a list."""

    module: str
    attribute: str
    help: str


COMMANDS: Final = {
    "verify": Where("verify", "verify", "Check every signature, hash and root of logs, on all cores."),
    "fold": Where("fold", "fold", "Fold logs to an overlay's state, one for each label."),
    "query-sql": Where("query_sql", "query_sql", "Ask logs in SQL."),
    "to-parquet": Where("to_parquet", "to_parquet", "Write logs as partitioned Parquet."),
    "stream": Where("stream", "stream", "Follow a hub's streams into Parquet, verified, exactly once."),
}


class SparkGroup(click.Group):
    """Lists its commands without loading them, nor Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if (where := COMMANDS.get(cmd_name)) is None:
            return None
        command = getattr(import_module(f"{__name__}.{where.module}"), where.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, where.help) for name, where in COMMANDS.items()])


spark = SparkGroup(
    "spark",
    no_args_is_help=True,
    subcommand_metavar="COMMAND …",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Logs of any size, on Spark: verify, fold, query, convert, follow.",
)
