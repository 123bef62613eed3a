"""``veen streams``: the streams that an identity has read or written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from veen_cli.arguments import completions
from veen_cli.frame import settings
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.identity.hub_records import hub_folders, label_records
from veen_cli.identity.identity_folder import Folder
from veen_cli.identity.known_streams import known_streams
from veen_core.ids import Epoch, HubId, Label
from veen_core.stream import control_label, label, routing_key, stream_id


@command("veen streams --client alice", "veen streams --client alice --json")
@click.option(
    "--client",
    envvar="VEEN_CLIENT",
    show_envvar=True,
    shell_complete=completions.folders,
    help="Folder of the identity.",
)
def streams(out: Output, *, client: str | None) -> Answer:
    """List the streams that an identity has read or written.

    The hub is not asked. A hub knows labels only, so a name is shown if this identity has used it in a
    command. Other labels, and labels of epochs other than 0, are listed in hex.
    """
    del out
    folder = Folder(Path(settings.required_value("client", client)).expanduser())
    folder.must_exist()
    known = known_streams(folder)
    hubs, lines = [], []
    for hub, _ in hub_folders(folder):
        rows = list(_streams(folder, hub, known.get(hub.hex(), [])))
        hubs.append({"hub_id": hub.hex(), "streams": rows})
        lines.append(f"hub {hub.hex()}: {plural(len(rows), 'stream')}")
        lines += [
            f"  {row['stream'] or 'label ' + row['label']}  verified up to message {row['stream_seq']}"
            + (f", {row['pending']} unanswered" if row["pending"] else "")
            for row in rows
        ]
    return Answer({"hubs": hubs}, lines or [f"{folder.root} has not read or written any stream yet"])


def _streams(folder: Folder, hub: HubId, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield one row per label, with the known name that has this label in epoch 0; then all other names."""
    routing = routing_key(hub)
    by_label: dict[Label, str] = {label(routing, stream_id(name), Epoch(0)): name for name in names}
    by_label[control_label(routing)] = "veen/control"
    found = set()
    for record in label_records(folder, hub):
        state = record.state
        name = by_label.get(state.label)
        found.add(name)
        yield {
            "stream": name,
            "label": state.label.hex(),
            "stream_seq": state.last_stream_seq,
            "pending": len(state.pending),
        }
    for name in names:
        if name not in found:
            yield {"stream": name, "label": None, "stream_seq": 0, "pending": 0}
