"""``veen rpc``: serve methods over a stream, call them, and look at the calls (RPC0, spec-1 §24)."""

from __future__ import annotations

from typing import Final

from veen_cli.frame.command_groups import CommandGroup, LazyCommand

COMMANDS: Final = {
    "serve": LazyCommand("veen_cli.rpc.serve:serve", "Serve the methods of a Python object or a program."),
    "call": LazyCommand("veen_cli.rpc.call:call", "Call a method and print its result."),
    "list": LazyCommand("veen_cli.rpc.listing:list_calls", "List the calls of a stream."),
    "info": LazyCommand("veen_cli.rpc.listing:info", "Show the servers of a stream and their methods."),
    "stats": LazyCommand("veen_cli.rpc.listing:stats", "Count the calls of a stream by method and status."),
}
rpc = CommandGroup("rpc", COMMANDS, path="rpc", help="Remote calls over a stream: serve, call, list.")
