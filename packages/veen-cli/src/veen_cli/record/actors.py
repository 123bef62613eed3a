"""``veen record actors``: who caused what, with unattributed events marked (SDR0 I3)."""

from __future__ import annotations

from typing import Any

import click

from veen_cli.arguments.identifiers import Hex
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.identity.identity_folder import Folder
from veen_cli.record.role_file import RoleFile, role_options
from veen_cli.record.session import RecorderSession, open_session
from veen_core.hashing import H
from veen_core.ids import ClientId
from veen_overlays.live import EpochView, Materializer
from veen_overlays.recorder import ACTORS
from veen_storage import ViewStore


@command(
    "veen record actors --config admin/recorder.yaml",
    "veen record actors record/security/auth --subject user:ann --config admin/recorder.yaml --json",
    "veen record actors --unattributed --config admin/recorder.yaml",
)
@click.argument("streams", nargs=-1, metavar="[STREAM…]")
@click.option("--subject", help="Only events of this actor.")
@click.option("--principal", type=Hex(ClientId), help="Only events that name this key, in hex.")
@click.option(
    "--unattributed", is_flag=True, help="Only events that their principal is not proved to have written."
)
@role_options
def actors(
    out: Output,
    *,
    file: RoleFile,
    streams: tuple[str, ...],
    subject: str | None,
    principal: ClientId | None,
    unattributed: bool,
) -> Answer:
    """Show who caused what: events by subject, principal, origin and event type.

    An event is attributed if the key that it names has signed its message, or has signed a link to the
    client_id that did. Other events are kept and marked.
    """
    del out

    async def work() -> tuple[list[dict[str, Any]], int]:
        rows, ignored = list[dict[str, Any]](), 0
        async with open_session(file) as session:
            for name in session.chosen(streams):
                found, missed = await _fold(session, name)
                rows += found
                ignored += missed
        return rows, ignored

    rows, ignored = loop.run(work())
    chosen = [
        row
        for row in rows
        if subject in (None, row["subject_id"])
        and principal in (None, row["principal_id"])
        and not (unattributed and row["attributed"])
    ]
    shown = [{**row, "principal_id": row["principal_id"].hex()} for row in chosen]
    return Answer({"actors": shown, "ignored": ignored}, _lines(shown, ignored))


async def _fold(session: RecorderSession, name: str) -> tuple[list[dict[str, Any]], int]:
    """Fold one stream; views are kept in the identity's folder, as those of other overlays."""
    hub, stream = session.hub, session.stream(name)
    readers = H(b"".join(key.public for key in session.keys)).hex()[:16]
    root = Folder(session.file.access.client).root / "views" / f"{hub.hub_id.hex()[:16]}-{readers}"
    epochs, reader = hub.epoch_labels(stream.id), hub.log_reader()
    with ViewStore(root) as store:
        view = (
            Materializer(ACTORS, stream.label(), reader, key=session.keys, store=store)
            if epochs is None
            else EpochView(ACTORS, epochs, reader, key=session.keys, store=store)
        )
        await view.open()
        await view.catch_up()
        summary = (await view.state()).summary
    rows = [{"stream": name, **row} for row in ACTORS.view(summary.inner)]
    return rows, summary.foreign + summary.undecodable


def _lines(rows: list[dict[str, Any]], ignored: int) -> list[str]:
    if not rows:
        return ["no events"]
    width = max(len(row["subject_id"]) for row in rows)
    lines = [
        f"{row['subject_id']:<{width}}  {row['event_type']}  {row['events']} at {row['origin']}, "
        f"{row['stream']}  by {row['principal_id'][:16]}…" + ("" if row["attributed"] else "  NOT ATTRIBUTED")
        for row in rows
    ]
    return [*lines, *([f"{plural(ignored, 'message')} without an event"] if ignored else [])]
