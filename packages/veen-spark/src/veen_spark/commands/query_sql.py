"""``veen spark query-sql``: logs queried in SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.frame import Answer, Integer, Output, command
from veen_spark.commands.paths import log_paths, require_paths
from veen_spark.commands.readers import reader_keys, reader_option
from veen_spark.commands.session import session, session_options

DEFAULT_ROWS: Final = 1_000


@command(
    'veen spark query-sql clone/ --query "select count(*) from log where not veen_verify_msg(msg)"',
    'veen spark query-sql exports/* --reader reader/ --query "select m.schema_name, '
    'veen_decode(m.schema, m.body) from (select veen_open(msg) as m from log)"',
    name="query-sql",
)
@log_paths
@click.option("--query", required=True, help="The SQL query; the table of entries is called log.")
@reader_option()
@click.option(
    "--limit", type=Integer(1), default=DEFAULT_ROWS, show_default=True, help="Largest number of rows shown."
)
@session_options
def query_sql(
    out: Output,
    *,
    paths: tuple[str, ...],
    query: str,
    readers: tuple[Path, ...],
    limit: int,
    master: str,
    conf: dict[str, str],
    verbose: bool,
) -> Answer | None:
    """Query the logs at PATHS in SQL.

    The logs are the table log; functions named veen_* verify, open, decode and fold. Byte strings are shown
    in hex. With --quiet only the rows are printed, without column names.
    """
    from veen_spark.functions import sql  # noqa: PLC0415 - loads pyspark, which --help does not need

    keys = reader_keys(readers)
    require_paths(paths, master)
    with session(out, master, conf, verbose=verbose) as spark:
        sql.register(spark, keys)
        spark.read.format("veen").load([*paths]).createOrReplaceTempView("log")
        answer = spark.sql(query)
        columns = answer.columns
        found = [[plain_value(value) for value in row] for row in answer.limit(limit + 1).collect()]
    more, rows = len(found) > limit, found[:limit]
    if out.as_json:
        return Answer({"columns": columns, "rows": rows, "more": more})
    if not out.quiet:
        click.echo("\t".join(columns))
    for row in rows:
        click.echo("\t".join(cell(value) for value in row))
    if more:
        click.echo(f"there are more than {limit} rows; raise --limit or aggregate in SQL", err=True)
    return None


def plain_value(value: Any) -> Any:
    """Convert a value for JSON: byte strings to hex, structs to objects, unknown types to text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray():
            return bytes(value).hex()
        case list():
            return [plain_value(each) for each in value]
        case dict():
            return {str(plain_value(name)): plain_value(each) for name, each in value.items()}
        case tuple() if hasattr(value, "asDict"):
            return {name: plain_value(each) for name, each in value.asDict().items()}
    return str(value)


def cell(value: Any) -> str:
    """Return a value as one line for a terminal; JSON escapes the control characters of a sender's text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text)[1:-1] if isinstance(value, str) and not text.isprintable() else text
