"""``veen resync`` and ``verify-state``: is what this identity remembers of a hub still so? (RESYNC0)"""

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
from veen_cli.frame.output import Answer, Output, fields
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
    """Bring what this identity knows of a stream up to date, and settle what was left open.

    Messages whose answer was lost are sent again or found in the log; then the verified prefix is moved
    to the newest message and to the latest checkpoint.
    """

    async def work() -> dict[str, Any]:
        async with target.connect() as hub:
            place = hub.stream(stream)
            with out.progress("settling and verifying"):
                settled = await place.settle()
                head = await place.head()
                checkpoint = await place.checkpoint()
            return {
                "stream": stream,
                "label": place.label().hex(),
                "settled": [each.stream_seq for each in settled.receipts],
                "refused": str(settled.failure) if settled.failure is not None else None,
                "stream_seq": head.stream_seq if head is not None else 0,
                "mmr_root": head.mmr_root.hex() if head is not None else None,
                "checkpoint": checkpoint.upto_seq if checkpoint is not None else None,
            }

    told = loop.run(work())
    return Answer(
        told,
        fields(
            {
                "verified up to": told["stream_seq"],
                "root": told["mmr_root"],
                "checkpoint at": told["checkpoint"],
                "settled": ", ".join(map(str, told["settled"])) or "nothing was open",
                "refused": told["refused"],
            }
        ),
    )


def _hubs(folder: Folder) -> Iterator[tuple[HubId, Path]]:
    if folder.state.is_dir():
        for path in sorted(folder.state.iterdir()):
            if path.is_dir():
                yield HubId.from_hex(path.name), path


@contextmanager
def _named(file: Path) -> Iterator[Path]:
    """What is wrong with a file is said with its name."""
    try:
        yield file
    except FileNotFoundError:
        raise StateError(f"{file} is missing: `veen resync` fetches it again") from None
    except VeenError as exc:
        raise StateError(f"{file}: {exc}; restore it, or move it away and run `veen resync`") from exc


def _check_hub(hub: HubId, path: Path) -> dict[str, Any]:
    """Everything a store holds of one hub; raises at the first thing that does not hold."""
    tokens, labels = 0, []
    with _named(path / f"{IDENTITY_RECORD}.state") as file:
        identity = HubIdentity.decode(file.read_bytes())
        hub_identity.verify_identity(identity, pinned=hub)
    for each in sorted(path.glob("*.state")):
        with _named(each) as file:
            if file.stem == TOKENS_RECORD:
                held = HeldTokens.decode(file.read_bytes()).tokens
                for one in held:
                    verify_token(one.token)
                tokens = len(held)
            elif file.stem != IDENTITY_RECORD:
                labels.append(_check_label(identity, LabelRecord.decode(file.read_bytes()), file.stem))
    return {"hub_id": hub.hex(), "keys": len(identity.hub_keys), "tokens": tokens, "labels": labels}


def _check_label(identity: HubIdentity, record: LabelRecord, name: str) -> dict[str, Any]:
    """Peaks, head and pending messages of one label agree with each other and with the hub's signature."""
    state = record.state
    if state.label.hex() != name:
        raise StateError("is of another label than its name says")
    tree = Mmr(state.last_stream_seq, state.peaks)
    if (head := state.head) is not None:
        hub_identity.verify_receipt(identity, head)
        if head.label != state.label:
            raise StateError("its head is of another label")
        if head.stream_seq == tree.size and head.mmr_root != tree.root:
            raise StateError("its peaks do not lead to the root that the hub signed")
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
    """Check everything that an identity remembers of hubs, without asking them.

    Signatures of receipts kept, roots of verified prefixes, tokens, messages still open. `veen resync`
    compares it with the hub.
    """
    folder = Folder(Path(settings.required_value("client", client)).expanduser())
    if not folder.exists:
        raise CommandFailed(
            f"{folder.root} holds no identity: name its folder with --client, or make one with `veen keygen`",
            Exit.USAGE,
        )
    try:
        hubs = [_check_hub(hub, path) for hub, path in _hubs(folder)]
    except StateError as exc:
        out.print_json_only({"folder": str(folder.root), "holds": False, "why": str(exc)})
        raise CommandFailed(str(exc), Exit.PROTOCOL) from exc
    lines = [f"the state of {folder.root} holds: {len(hubs)} hub(s)"]
    for hub in hubs:
        lines.append(f"hub {hub['hub_id']}: {hub['tokens']} token(s)")
        lines += [
            f"  label {each['label'][:16]}… verified up to {each['stream_seq']}, {each['pending']} open"
            for each in hub["labels"]
        ]
    return Answer({"folder": str(folder.root), "holds": True, "hubs": hubs}, lines)
