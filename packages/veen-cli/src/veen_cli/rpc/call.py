"""``veen rpc call``: call a method of a live server and print its result (RPC0.1, RPC0.3)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.commands.send import receipt_dict
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream
from veen_cli.rpc.access import call_options, principals, stream_access
from veen_core.entry import Entry
from veen_core.errors import VeenError
from veen_core.ids import ClientId, StreamId, StreamSeq
from veen_overlays.fold.overlay import in_json
from veen_overlays.live.rpc import Exchanged, RpcError, connect_rpc
from veen_overlays.rpc.exchange import INTERNAL, INTERRUPTED, NO_REPLY, NO_SERVER, RPC
from veen_overlays.rpc.records import Reply, Request
from veen_overlays.rpc.transcript import Transcript, TranscriptMessage, opened_by, transcript_message

EVIDENCE_SECONDS: Final = 60.0
"""Longest wait until the hub log covers the reply, for a transcript."""


def _args(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except RecursionError:
        raise CommandFailed("ARGS are nested too deeply", Exit.USAGE, "send a flatter value") from None
    except ValueError as exc:
        raise CommandFailed(
            f"ARGS are not JSON: {exc}", Exit.USAGE, 'write a map such as {"a": 2} or a list such as [2, 3]'
        ) from None


def _check_encodes(request: Request) -> None:
    try:
        request.encode()
    except RecursionError:
        raise CommandFailed("ARGS are nested too deeply", Exit.USAGE, "send a flatter value") from None
    except VeenError as exc:
        raise CommandFailed(
            f"ARGS cannot be a record: {exc}", Exit.USAGE, "send a fraction as a string or as a whole number"
        ) from None


def _check_folder(file: Path) -> None:
    """Refuse a file that cannot be written before the call, whose answer would be lost after it."""
    if not os.access(file.absolute().parent, os.W_OK | os.X_OK):
        raise CommandFailed(
            f"--transcript {file}: its folder does not exist or is not writable; nothing was sent",
            Exit.USAGE,
            "name a file in another folder",
        )


_EXPLAINED: Final[Mapping[str, tuple[str | None, str | None]]] = {
    NO_SERVER: (None, "start one with `veen rpc serve`; if one runs, check --stream, --reader and --server"),
    NO_REPLY: (None, "ask again with --idem {idem}: the method does not run twice"),
    INTERNAL: ("the method failed on the server", "ask the server's operator: the reason is in its log"),
    INTERRUPTED: (
        "the server died while the method ran, so its effect is unknown",
        "look for the effect, then call again without --idem if it is missing",
    ),
}
"""By code of RPC0: what it means where the reply does not say it, and the next step."""


def _failed(code: str, detail: str | None, idem: int) -> CommandFailed:
    why, action = _EXPLAINED.get(code, (None, None))
    known = detail or why
    exit_code = Exit.NETWORK if code in (NO_SERVER, NO_REPLY) else Exit.REFUSED
    return CommandFailed(
        f"{code}: {known}" if known else code, exit_code, action and action.format(idem=idem), reason=code
    )


@command(
    'veen rpc call add \'{"a": 2, "b": 3}\' --stream calls --reader calls-reader',
    'veen rpc call add "[2, 3]" --idem 17 --timeout 5s --stream calls --reader calls-reader --json',
    'veen rpc call add "[2, 3]" --transcript call.veenr --stream calls --reader calls-reader',
)
@click.argument("method")
@click.argument("args", required=False)
@click.option(
    "--timeout",
    type=times.Duration(),
    default="10s",
    show_default=True,
    help="Deadline of the request: a server does not run it later.",
)
@click.option("--retries", type=Integer(0), default=0, show_default=True, help="Attempts after a timeout.")
@click.option("--idem", type=Integer(0), help="Idempotency key [default: a random one].")
@click.option(
    "--server",
    "servers",
    multiple=True,
    type=Hex(ClientId),
    help="Identity key whose servers count; repeatable [default: all that are announced].",
)
@click.option(
    "--transcript",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the call as evidence for `veen verify`.",
)
@call_options
def call(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    method: str,
    args: str | None,
    timeout: int,
    retries: int,
    idem: int | None,
    servers: tuple[ClientId, ...],
    transcript: Path | None,
) -> Answer:
    """Call a method and print its result.

    ARGS are JSON: a map of parameters by name, or a list by position. A call with the same --idem as an
    earlier call of this client gets the same answer, and the method does not run again. Without a live
    server the command fails at once and sends nothing.
    """
    given = _args(args)
    _check_encodes(Request(method=method, args=given))
    if transcript is not None:
        _check_folder(transcript)

    async def work() -> tuple[Exchanged, int, Transcript | None]:
        async with access.at(stream) as source:
            async with connect_rpc(stream_access(source), servers=principals(servers)) as client:
                key = client.new_idem() if idem is None else idem

                def request(timeout_ms: int, reply_to: StreamId | None) -> Request:
                    return Request(
                        method=method, args=given, timeout_ms=timeout_ms, reply_to=reply_to, idem=key
                    )

                try:
                    done = await client.exchange(RPC, request, method, timeout=timeout, retries=retries)
                except RpcError as exc:
                    raise _failed(exc.code, exc.detail, key) from None
            told = None
            if transcript is not None:
                out.note("waiting until the hub log covers the reply")
                told = await _transcript(source, done)
            return done, key, told

    done, key, told = loop.run(work())
    reply = done.reply
    assert isinstance(reply, Reply)
    if transcript is not None and told is not None:
        transcript.write_bytes(told.encode())
    if reply.error is not None:
        raise _failed(reply.error.code, reply.error.detail, key)
    result = in_json(reply.result)
    data = {
        "method": method,
        "result": result,
        "idem": key,
        "server": done.server.principal.hex(),
        "request": receipt_dict(done.request),
        "reply": receipt_dict(done.reply_entry.receipt),
    }
    if transcript is not None:
        data["transcript"] = str(transcript)
    return Answer(data, json.dumps(result, indent=2, ensure_ascii=False).splitlines())


async def _transcript(source: OverlayStream, done: Exchanged) -> Transcript:
    """Gather the evidence of a call; the hub log must cover its messages."""

    async def told(seq: int, entry: Entry | None = None) -> TranscriptMessage:
        if entry is None:
            found = await source.hub.log_reader().page(source.stream.label(), StreamSeq(seq), 1)
            entry = found[0]
        evidence = await source.stream.evidence(seq, timeout=EVIDENCE_SECONDS)
        return transcript_message(entry, opened_by(entry, source.keys), evidence)

    reply = await told(done.reply_entry.stream_seq, done.reply_entry)
    return Transcript(
        announcement=await told(done.server.seen_at), request=await told(done.request.stream_seq), reply=reply
    )
