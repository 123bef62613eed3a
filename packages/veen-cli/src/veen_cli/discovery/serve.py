"""``veen disc serve``: answer queries of other clients over RPC, until SIGTERM or Ctrl-C (spec-5 6.2)."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack

import click

from veen_cli.discovery.directory_access import stream_of
from veen_cli.discovery.query import QUERY_STREAM
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options
from veen_cli.rpc.access import stream_access
from veen_overlays.discovery.records import KINDS, Kind
from veen_overlays.discovery.state import DISCOVERY
from veen_overlays.discovery.streams import public_reader
from veen_overlays.live.discovery import DirectoryService, LiveDirectory
from veen_overlays.live.rpc import RpcServer


@command("veen disc serve", "veen disc serve --on city.queries --hubs city.hubs --services city.services")
@click.option(
    "--on", default=QUERY_STREAM, show_default=True, metavar="STREAM", help="Stream of the queries."
)
@click.option("--hubs", metavar="STREAM", help="Stream of hub descriptors [default: disc.hubs.v1].")
@click.option("--services", metavar="STREAM", help="Stream of services [default: disc.services.v1].")
@click.option("--overlays", metavar="STREAM", help="Stream of overlays [default: disc.overlays.v1].")
@access_options
def serve(
    out: Output,
    *,
    access: OverlayAccess,
    on: str,
    hubs: str | None,
    services: str | None,
    overlays: str | None,
) -> Answer:
    """Answer queries of other clients over RPC.

    The answers are those of `veen disc query` at the same root of the stream.
    """
    del out
    named: dict[Kind, str | None] = {"hub": hubs, "overlay": overlays, "service": services}

    async def work() -> int:
        async with access.streams(reader_of=public_reader) as at_stream, AsyncExitStack() as stack:
            directories = {}
            for kind in KINDS:
                view = await stack.enter_async_context(
                    at_stream(stream_of(kind, named[kind])).view(DISCOVERY)
                )
                directories[kind] = LiveDirectory(view)
            served = DirectoryService(directories)
            server = RpcServer(
                served.service, stream_access(at_stream(on)), access.identity.signing_key, max_running=1
            )
            running = asyncio.create_task(server.run())
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, server.stop)
            announced = asyncio.create_task(server.announced.wait())
            await asyncio.wait((running, announced), return_when=asyncio.FIRST_COMPLETED)
            announced.cancel()
            if server.announced.is_set():
                click.echo(f"answering queries on {on}", err=True)  # scripts wait for it
            await running
            return server.counters.executed

    executed = loop.run(work())
    return Answer({"stream": on, "executed": executed}, [f"answered {plural(executed, 'query', 'queries')}"])
