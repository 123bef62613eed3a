"""The options that all commands of ``veen rpc`` share: the stream, its reader key, the hub."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream
from veen_core.ids import ClientId
from veen_overlays.live.rpc import StreamAccess, access

READER_HELP: Final = (
    "Folder of the reader key that the stream's servers and clients share [default: your identity's key]."
)


def call_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of ``connects``, ``--stream`` and ``--reader``; the command gets an ``access``."""

    @wraps(work)
    def run(*args: Any, target: Target, reader: tuple[Path, ...], **options: Any) -> Any:
        return work(*args, access=OverlayAccess(target=target, reader=reader, to=None, cap=None), **options)

    option = click.option(
        "--reader", multiple=True, type=click.Path(path_type=Path, exists=True), help=READER_HELP
    )
    found: Callable[..., Any] = stream_option(option(connects(run)))
    return found


def stream_access(source: OverlayStream) -> StreamAccess:
    """The access of server and client to a stream; a stream with epochs is refused."""
    return access(source.stream, source.hub.log_reader())


def principals(named: tuple[ClientId, ...]) -> tuple[bytes, ...] | None:
    """The principals whose servers count; None counts every announced server."""
    return tuple(bytes(each) for each in named) or None
