"""``veen resync`` and ``verify-state``: update an identity's state, and check it (spec-1 RESYNC0)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from veen_cli.arguments import completions
from veen_cli.frame import loop, settings
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields, plural
from veen_cli.identity.hub_records import hub_folders
from veen_cli.identity.identity_folder import Folder
from veen_core import hub_identity
from veen_core.cap import verify_token
from veen_core.errors import StateError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.mmr import Mmr
from veen_core.msg import verify_msg
from veen_hub.client.state.records import HeldTokens, LabelRecord
from veen_hub.client.tokens import TOKENS_RECORD
from veen_hub.client.wire.connection import IDENTITY_RECORD


@command("veen resync --stream orders --client alice")
@stream_option
@connects
def resync(out: Output, *, target: Target, stream: str) -> Answer:
    """Verify a whole stream, and settle messages without an answer.

    A message whose answer was lost is found in the log or sent again, byte for byte. Then the stream is
    verified up to its newest message and its latest checkpoint.
    """

    async def work() -> dict[str, Any]:
        async with target.connect() as hub:
            source = hub.stream(stream)
            with out.progress("settling and verifying"):
                settled = await source.settle()
                head = await source.head()
                checkpoint = await source.checkpoint()
            target.remember_stream(hub, stream)
            return {
                "stream": stream,
                "label": source.label().hex(),
                "settled": [each.stream_seq for each in settled.receipts],
                "refused": str(settled.failure) if settled.failure is not None else None,
                "stream_seq": head.stream_seq if head is not None else 0,
                "mmr_root": head.mmr_root.hex() if head is not None else None,
                "checkpoint": checkpoint.upto_seq if checkpoint is not None else None,
            }

    data = loop.run(work())
    return Answer(
        data,
        fields(
            {
                "verified up to": data["stream_seq"],
                "root": data["mmr_root"],
                "checkpoint at": data["checkpoint"],
                "settled": ", ".join(map(str, data["settled"])) or "nothing was unanswered",
                "refused": data["refused"],
            }
        ),
    )


@contextmanager
def naming_file(file: Path) -> Iterator[Path]:
    """Name the file in every error that its content raises."""
    try:
        yield file
    except FileNotFoundError:
        raise StateError(f"{file} is missing", action="fetch it again with `veen resync`") from None
    except VeenError as exc:
        raise StateError(
            f"{file}: {exc.message}",
            action="restore the file from a backup, or move it away and run `veen resync`",
        ) from exc


def _check_hub(hub: HubId, path: Path) -> dict[str, Any]:
    """Check all records of one hub; raise at the first that is wrong."""
    tokens, labels = 0, []
    with naming_file(path / f"{IDENTITY_RECORD}.state") as file:
        identity = HubIdentity.decode(file.read_bytes())
        hub_identity.verify_identity(identity, pinned=hub)
    for each in sorted(path.glob("*.state")):
        with naming_file(each) as file:
            if file.stem == TOKENS_RECORD:
                held = HeldTokens.decode(file.read_bytes()).tokens
                for one in held:
                    verify_token(one.token)
                tokens = len(held)
            elif file.stem != IDENTITY_RECORD:
                labels.append(_check_label(identity, LabelRecord.decode(file.read_bytes()), file.stem))
    return {"hub_id": hub.hex(), "keys": len(identity.hub_keys), "tokens": tokens, "labels": labels}


def _check_label(identity: HubIdentity, record: LabelRecord, name: str) -> dict[str, Any]:
    """Check that peaks, newest receipt and pending messages of a label agree with each other."""
    state = record.state
    if state.label.hex() != name:
        raise StateError("the label in the record is not the one in its file name")
    tree = Mmr(state.last_stream_seq, state.peaks)
    if (head := state.head) is not None:
        hub_identity.verify_receipt(identity, head)
        if head.label != state.label:
            raise StateError("the newest receipt is for another label")
        if head.stream_seq == tree.size and head.mmr_root != tree.root:
            raise StateError("the root of the peaks is not the root that the hub signed")
    for wire in state.pending:
        verify_msg(wire)
    return {
        "label": name,
        "stream_seq": state.last_stream_seq,
        "client_id": state.client_id.hex(),
        "client_seq": state.client_seq,
        "pending": len(state.pending),
    }


@command("veen verify-state --client alice", name="verify-state")
@click.option(
    "--client",
    envvar="VEEN_CLIENT",
    show_envvar=True,
    shell_complete=completions.folders,
    help="Folder of the identity whose state is checked.",
)
def verify_state(out: Output, *, client: str | None) -> Answer:
    """Check what an identity keeps about hubs, without asking them.

    The check covers signatures of receipts, roots of verified logs, tokens and unanswered messages. `veen
    resync` compares the state of a stream with the hub.
    """
    folder = Folder(Path(settings.required_value("client", client)).expanduser())
    folder.must_exist()
    try:
        hubs = [_check_hub(hub, path) for hub, path in hub_folders(folder)]
    except StateError as exc:
        out.print_json_only({"folder": str(folder.root), "holds": False, "why": str(exc)})
        raise CommandFailed(exc.message, Exit.PROTOCOL, exc.action) from exc
    lines = [f"the state of {folder.root} is valid: {plural(len(hubs), 'hub')}"]
    for hub in hubs:
        lines.append(f"hub {hub['hub_id']}: {plural(hub['tokens'], 'token')}")
        lines += [
            f"  label {each['label'][:16]}… verified up to {each['stream_seq']}, {each['pending']} unanswered"
            for each in hub["labels"]
        ]
    return Answer({"folder": str(folder.root), "holds": True, "hubs": hubs}, lines)
