"""``veen query``: ask recorded streams, verify answers without a service, compare answers, serve queries."""

from __future__ import annotations

from typing import Final

from veen_cli.frame.command_groups import CommandGroup, LazyCommand

COMMANDS: Final = {
    "run": LazyCommand(
        "veen_cli.query.run:run", "Query recorded streams, through a service or with your own keys."
    ),
    "verify": LazyCommand(
        "veen_cli.query.verify:verify",
        "Verify a result file without a service; with the log, execute it again.",
    ),
    "compare": LazyCommand(
        "veen_cli.query.compare:compare", "Compare two results, or a result and the same query executed now."
    ),
    "serve": LazyCommand("veen_cli.query.serve:serve", "Run the Query API as a service in the foreground."),
    "token": LazyCommand(
        "veen_cli.query.token:token", "Create a bearer token for a principal of the service."
    ),
}
query = CommandGroup(
    "query", COMMANDS, path="query", help="Query recorded streams; answers carry their own proof."
)
