"""``veen spark query-sql``: ask logs in SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from veen_spark.commands.paths import require_paths
from veen_spark.commands.readers import reader_keys, reader_option
from veen_spark.commands.session import HELP, ExampleCommand, log_paths, session, session_options, show

EXAMPLES: Final = (
    'veen spark query-sql "select count(*) from log where not veen_verify_msg(msg)" clone/',
    'veen spark query-sql "select m.schema_name, veen_decode(m.schema, m.body) from '
    '(select veen_open(msg) as m from log)" exports/* --reader reader/',
)


@click.command("query-sql", cls=ExampleCommand, examples=EXAMPLES, context_settings=HELP)
@click.argument("query")
@log_paths
@reader_option
@click.option("--limit", type=click.IntRange(min=1), default=1_000, help="Rows to show at the most (1000).")
@session_options
def query_sql(
    *,
    query: str,
    paths: tuple[str, ...],
    readers: tuple[Path, ...],
    limit: int,
    master: str,
    conf: dict[str, str],
    verbose: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Ask logs in SQL.

    PATHS are the table log, and veen_* functions verify, open, decode and fold. Byte strings are shown in
    hex. If there are more rows than --limit, it says so. With --quiet nothing but the rows is printed.
    """
    from veen_spark.functions import sql  # noqa: PLC0415 - loads pyspark, which --help does not need

    keys = reader_keys(readers)
    require_paths(paths, master)
    with session(master, conf, verbose=verbose) as spark:
        sql.register(spark, keys)
        spark.read.format("veen").load([*paths]).createOrReplaceTempView("log")
        answer = spark.sql(query)
        columns = answer.columns
        found = [[shown(value) for value in row] for row in answer.limit(limit + 1).collect()]
    more, rows = len(found) > limit, found[:limit]
    if as_json:
        show({"columns": columns, "rows": rows, "more": more})
        return
    if not quiet:
        click.echo("\t".join(columns))
    for row in rows:
        click.echo("\t".join(_cell(value) for value in row))
    if more:
        click.echo(f"there are more than {limit} rows: say --limit, or aggregate", err=True)


def shown(value: Any) -> Any:
    """For JSON: byte strings in hex, structs as objects, what JSON has no name for as text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray():
            return bytes(value).hex()
        case list():
            return [shown(each) for each in value]
        case dict():
            return {str(shown(name)): shown(each) for name, each in value.items()}
        case tuple() if hasattr(value, "asDict"):
            return {name: shown(each) for name, each in value.asDict().items()}
    return str(value)


def _cell(value: Any) -> str:
    """One line for a terminal, whatever a sender wrote: JSON escapes control characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text)[1:-1] if isinstance(value, str) and not text.isprintable() else text
