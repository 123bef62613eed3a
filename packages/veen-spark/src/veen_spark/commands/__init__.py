"""``veen spark …``: one module per command, imported when the command is run.

All commands take their arguments in one order: the logs to read as PATHS, everything else as options. A
command that writes a folder calls it ``--out``.
"""

from __future__ import annotations

from typing import Final

from veen_cli.frame import CommandGroup, LazyCommand

COMMANDS: Final = {
    "verify": LazyCommand(
        f"{__name__}.verify:verify",
        "Check every signature, hash and root of the logs at PATHS, and that the hub log agrees with them.",
    ),
    "fold": LazyCommand(
        f"{__name__}.fold:fold", "Compute an overlay's state from the logs at PATHS, one state per label."
    ),
    "query": LazyCommand(
        f"{__name__}.query:query",
        "Answer a query of the Query API from the logs at PATHS, with its evidence.",
    ),
    "query-sql": LazyCommand(f"{__name__}.query_sql:query_sql", "Query the logs at PATHS in SQL."),
    "to-parquet": LazyCommand(
        f"{__name__}.to_parquet:to_parquet",
        "Write the logs at PATHS as Parquet, with the same columns, in one folder per hub and day.",
    ),
    "stream": LazyCommand(
        f"{__name__}.stream:stream", "Follow a hub's streams and write every entry to Parquet exactly once."
    ),
}

spark = CommandGroup(
    "spark",
    COMMANDS,
    path="spark",
    help="Verify, fold, query and follow logs of any size on Spark.",
)
