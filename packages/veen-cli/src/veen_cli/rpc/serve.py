"""``veen rpc serve``: serve methods until SIGTERM or Ctrl-C, then finish the calls that run (RPC0.1)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import shutil
import signal
import sys
from importlib import import_module
from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.imports import without_collection
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.overlays.overlay_stream import OverlayAccess
from veen_cli.rpc.access import call_options, stream_access
from veen_core.ids import ClientId
from veen_overlays.live.rpc import Call, CallError, RpcServer, ServerCounters, Service
from veen_overlays.rpc.records import MAX_LEASE_SEC

EXIT_ERROR: Final = 1
"""Exit code of a program whose output is an error for the caller."""
MAX_OUTPUT_BYTES: Final = 1_048_576
"""Longest output of a program, in bytes; longer than any record."""


def load_service(where: str) -> Service:
    """Import ``module:object``, a ``Service``; modules in the current folder are found too."""
    module, _, name = where.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        with without_collection():
            found = getattr(import_module(module), name or "service")
    except (ImportError, AttributeError) as exc:
        raise CommandFailed(
            f"{where} cannot be loaded: {exc}", Exit.USAGE, action="name it as MODULE:OBJECT"
        ) from None
    if not isinstance(found, Service):
        raise CommandFailed(
            f"{where} is a {type(found).__name__}, not a Service",
            Exit.USAGE,
            action="make one with veen_overlays.live.rpc.Service()",
        )
    return found


class LogLines(logging.Formatter):
    """The log of a server on stderr: the event, its fields, and the traceback of a method that failed."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in getattr(record, "fields", {}).items())
        text = f"{record.getMessage()}{fields}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def log_to_stderr() -> None:
    """Write the warnings of the server with their fields, unless the service has set up logging itself."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(LogLines())
        logging.getLogger("veen.rpc").addHandler(handler)


def program_words(program: str) -> list[str]:
    """Split the value of ``--exec`` as a shell does; refuse a program that cannot be started."""
    try:
        words = shlex.split(program)
    except ValueError as exc:
        raise CommandFailed(f"--exec {program}: {exc}", Exit.USAGE, "close the quotation") from None
    if not words or shutil.which(words[0]) is None:
        raise CommandFailed(
            f"--exec {program}: there is no such executable program",
            Exit.USAGE,
            "check its path, and make it executable with `chmod +x`",
        )
    return words


def program_service(program: str, methods: tuple[str, ...], *, at_most_once: bool) -> Service:
    """A service whose methods run a program, with the call as JSON on its stdin."""
    words, service = program_words(program), Service()
    for method in methods:

        async def run(args: Any, call: Call) -> Any:
            return await _run_program(words, args, call)

        service.add_untyped(method, run, at_most_once=at_most_once)
    return service


async def _run_program(words: list[str], args: Any, call: Call) -> Any:
    given = {
        "method": call.method,
        "args": args,
        "call": call.key.hex(),
        "client_id": call.client_id.hex(),
        "idem": call.idem,
        "timeout_ms": call.timeout_ms,
    }
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C ends the server, which lets the program finish
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(given, default=bytes.hex).encode() + b"\n")
        process.stdin.close()
        output = await process.stdout.read(MAX_OUTPUT_BYTES + 1)
        while len(output) <= MAX_OUTPUT_BYTES and (more := await process.stdout.read(65_536)):
            output += more
        if len(output) > MAX_OUTPUT_BYTES:
            raise ValueError(f"the program printed more than {MAX_OUTPUT_BYTES} bytes")
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code not in (0, EXIT_ERROR):
        raise RuntimeError(f"the program ended with exit code {code}")
    found = json.loads(output)
    if code == EXIT_ERROR:
        raise CallError(str(found["code"]), found.get("detail"))
    return found


def _counted(counters: ServerCounters) -> dict[str, int]:
    return {name: getattr(counters, name) for name in ServerCounters.__dataclass_fields__}


@command(
    "veen rpc serve calculator:service --stream calls --reader calls-reader",
    "veen rpc serve --exec ./translate --method translate --stream calls --reader calls-reader",
)
@click.argument("where", required=False, metavar="[MODULE:OBJECT]")
@click.option("--exec", "program", metavar="PROGRAM", help="Run this program for each call.")
@click.option("--method", "methods", multiple=True, help="A method that the program serves; repeatable.")
@click.option(
    "--at-most-once", is_flag=True, help="Do not run a call of the program again after a crash of the server."
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    type=Hex(ClientId),
    help="Identity key of another operator whose servers share the work; repeatable.",
)
@click.option(
    "--lease",
    type=times.Duration(),
    default="30s",
    show_default=True,
    help="How long the server counts as alive after its last announcement.",
)
@click.option(
    "--concurrency", type=Integer(1), default=64, show_default=True, help="Calls that run at the same time."
)
@call_options
def serve(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    where: str | None,
    program: str | None,
    methods: tuple[str, ...],
    at_most_once: bool,
    peers: tuple[ClientId, ...],
    lease: int,
    concurrency: int,
) -> Answer:
    """Serve the methods of a Python object or a program.

    OBJECT is a `veen_overlays.live.rpc.Service`. With --exec, PROGRAM runs once per call: the call is one
    line of JSON on its stdin, its output is the result as JSON. With exit code 1 its output is an error for
    the caller, a map with "code" and "detail". SIGTERM and Ctrl-C let running calls finish; the second one
    ends the server at once.
    """
    if (where is None) == (program is None) or (program is None) != (not methods):
        raise CommandFailed(
            "name either MODULE:OBJECT, or --exec PROGRAM with --method NAME",
            Exit.USAGE,
            action="see `veen rpc serve --help`",
        )
    if not 3 <= lease <= MAX_LEASE_SEC:
        raise CommandFailed(f"--lease must be 3 to {MAX_LEASE_SEC} seconds", Exit.USAGE)
    if program is not None:
        service = program_service(program, methods, at_most_once=at_most_once)
    else:
        assert where is not None
        service = load_service(where)

    del out
    log_to_stderr()

    async def work() -> ServerCounters:
        async with access.at(stream) as source:
            server = RpcServer(
                service,
                stream_access(source),
                access.identity.signing_key,
                peers=[bytes(each) for each in peers],
                lease_sec=lease,
                max_running=concurrency,
            )
            running = asyncio.create_task(server.run())
            _stop_on_signals(server, running)
            announced = asyncio.create_task(server.announced.wait())
            await asyncio.wait((running, announced), return_when=asyncio.FIRST_COMPLETED)
            announced.cancel()
            if server.announced.is_set():
                click.echo(f"serving {', '.join(service.names)} on {stream}", err=True)
            try:
                await running
            except asyncio.CancelledError:
                raise click.Abort from None
            return server.counters

    counted = _counted(loop.run(work()))
    return Answer({"stream": stream, **counted}, fields(counted))


def _stop_on_signals(server: RpcServer, running: asyncio.Task[None]) -> None:
    """Drain at the first signal, end at once at the second."""
    running_loop, asked = asyncio.get_running_loop(), False

    def stop() -> None:
        nonlocal asked
        if asked:
            running.cancel()
        asked = True
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        running_loop.add_signal_handler(number, stop)
