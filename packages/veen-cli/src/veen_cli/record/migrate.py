"""``veen record migrate``: record that streams were renamed, split or merged (SDR0 3.2.2, P10)."""

from __future__ import annotations

from typing import Any

import click

from veen_cli.commands.send import receipt_dict
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output
from veen_cli.record.role_file import RoleFile, role_options
from veen_cli.record.session import open_session
from veen_core.receipt import Receipt
from veen_overlays.recorder.profile import check_stream_name
from veen_overlays.recorder.records import CHANGES_STREAM, MigrationRecord
from veen_overlays.recorder.roles import ADMIN


@command(
    "veen record migrate --config admin/recorder.yaml --old record/app/shop --new record/app/cart "
    "--new record/app/till --reason 'one stream per service'",
)
@click.option("--old", "before", multiple=True, help="Stream before the migration; may be repeated.")
@click.option("--new", "after", multiple=True, help="Stream after the migration; may be repeated.")
@click.option("--reason", required=True, help="Why the streams change.")
@role_options
def migrate(
    out: Output, *, file: RoleFile, before: tuple[str, ...], after: tuple[str, ...], reason: str
) -> Answer:
    """Record that streams were renamed, split, merged, added or retired.

    The record goes to record/infrastructure/changes. Change `streams` in every recorder.yaml yourself: the
    new profile has another profile id.
    """
    del out
    file.role.require(ADMIN, "migrate")
    for name in (*before, *after):
        check_stream_name(name)

    async def work() -> tuple[MigrationRecord, Receipt]:
        async with open_session(file) as session:
            now = session.hub.connection.time.now()
            record = MigrationRecord(from_=before, to=after, reason=reason, at=now)
            record.encode()  # a rule that it breaks is reported before anything is sent
            return record, await session.stream(CHANGES_STREAM).send(record)

    record, receipt = loop.run(work())
    data: dict[str, Any] = {
        "stream": CHANGES_STREAM,
        "from": list(record.from_),
        "to": list(record.to),
        "reason": reason,
        "at": record.at,
        **receipt_dict(receipt),
    }
    moved = f"{', '.join(before) or 'nothing'} to {', '.join(after) or 'nothing'}"
    line = f"recorded the migration of {moved}: message {receipt.stream_seq} of {CHANGES_STREAM}"
    return Answer(data, [line])
