"""``veen bridge import``: verify bundles and write their events to the target hub (AGB0 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from veen_bridge.commands.arguments import config_option, load_role, unlock_with
from veen_bridge.importing.run import ImportOutcome, ImportRun
from veen_bridge.roles.config import OFFLINE, BridgeConfig
from veen_bridge.roles.session import RoleKeys, RoleSession, open_session
from veen_cli.frame import (
    Answer,
    CommandFailed,
    Exit,
    Output,
    Passphrase,
    Progress,
    ViewStore,
    command,
    passphrase_option,
    plural,
    run_loop,
)
from veen_core.errors import VeenError
from veen_core.keys import SigningKey
from veen_hub.client import Identity


@command(
    "veen bridge import --config z2/bridge.yaml media/*.veenb",
    "veen bridge import --config z2/bridge.yaml media --skip-imported --checkpoint --admin admin2",
    name="import",
)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="FILE…"
)
@config_option
@click.option(
    "--allow-gap", is_flag=True, help="Import although an earlier bundle is missing; record the gap."
)
@click.option("--skip-imported", is_flag=True, help="Leave out bundles that were imported before.")
@click.option("--checkpoint", is_flag=True, help="Make a checkpoint of the import streams; needs --admin.")
@click.option("--anchor", is_flag=True, help="Anchor that checkpoint with the hub's anchor; needs --admin.")
@click.option(
    "--admin",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the target hub's admin, for --checkpoint and --anchor.",
)
@passphrase_option
def import_(
    out: Output,
    *,
    files: tuple[Path, ...],
    config_file: Path,
    allow_gap: bool,
    skip_imported: bool,
    checkpoint: bool,
    anchor: bool,
    admin: Path | None,
    passphrase_file: Path | None,
) -> Answer:
    """Verify bundles and write their events to the import streams of the target hub.

    FILE is a bundle, one of its parts, or a folder of them. A bundle is verified whole before its first
    event is written. Interrupted at any point, the same command continues: no event is lost or doubled.
    Every import and every refusal is recorded in bridge/offline/log.
    """
    if (checkpoint or anchor) and admin is None:
        raise click.UsageError("--checkpoint and --anchor need --admin: the target hub's admin signs them.")
    config, keys = load_role(config_file, passphrase_file)
    config.require(OFFLINE, "import")
    admin_key = (
        Identity.of(unlock_with(Passphrase(passphrase_file))(admin)).signing_key
        if admin is not None
        else None
    )

    async def work() -> tuple[list[ImportOutcome], list[str] | VeenError]:
        with ViewStore(_views(config, keys)) as store, out.progress("importing events") as bar:
            async with open_session(config, keys) as session:
                run = ImportRun(
                    session=session,
                    allow_gap=allow_gap,
                    skip_imported=skip_imported,
                    store=store,
                    progress=lambda step, count: _advance(bar, step, count),
                )
                outcomes = await run.run(files)
                try:
                    made = await _seal(session, outcomes, admin_key, checkpoint=checkpoint, anchor=anchor)
                except VeenError as exc:  # the bundles are imported all the same
                    return outcomes, exc
                return outcomes, made

    try:
        outcomes, sealed = run_loop(work())
    except KeyboardInterrupt:
        out.note("interrupted; the same command with --skip-imported continues where it stopped")
        raise
    if isinstance(sealed, VeenError):
        out.print_answer(_answer(outcomes, []))
        out.note("the checkpoint or anchor failed: repeat it with `veen hub checkpoint`, `veen hub anchor`")
        raise sealed
    return _answer(outcomes, sealed)


def _views(config: BridgeConfig, keys: RoleKeys) -> Path:
    return config.client / "views" / f"{config.trust[:16]}-{keys.bridge_id.hex()[:16]}"


def _advance(bar: Progress, step: str, count: int) -> None:
    if step == "import":
        bar.advance(count)


async def _seal(
    session: RoleSession,
    outcomes: Sequence[ImportOutcome],
    admin: SigningKey | None,
    *,
    checkpoint: bool,
    anchor: bool,
) -> list[str]:
    """Make an import checkpoint of each label that received events, and anchor it (AGB0 4.5 step 6)."""
    if admin is None:
        return []
    requests = session.hub.admin(admin)
    labels = {each.label for outcome in outcomes if outcome.imported for each in outcome.imported.targets}
    made: list[str] = []
    for label in sorted(labels):
        found = await requests.checkpoint(label) if checkpoint or anchor else ()
        if anchor:
            await requests.anchor(label)
        made += [each.encode().hex() for each in found]
    return made


def _answer(outcomes: Sequence[ImportOutcome], checkpoints: list[str]) -> Answer:
    bundles = [_as_json(outcome) for outcome in outcomes]
    failed = [outcome for outcome in outcomes if outcome.failure is not None]
    done = [outcome.imported for outcome in outcomes if outcome.imported is not None]
    lines = [_line(outcome) for outcome in outcomes]
    if not outcomes:
        raise CommandFailed("the files contain no bundle", Exit.USAGE, "give files that end in .veenb")
    events = sum(each.written + each.found for each in done)
    lines.append(
        f"{plural(len(done), 'bundle')} imported with {plural(events, 'event')}, {len(failed)} refused, "
        f"{sum(outcome.skipped for outcome in outcomes)} skipped"
    )
    data: dict[str, Any] = {"bundles": bundles, "checkpoints": checkpoints}
    return Answer(data, lines, Exit.PROTOCOL if failed else Exit.OK)


def _as_json(outcome: ImportOutcome) -> dict[str, Any]:
    data: dict[str, Any] = {"bundle_id": outcome.bundle_id.hex() if outcome.bundle_id is not None else None}
    if (done := outcome.imported) is not None:
        header = done.plan.header
        return data | {
            "result": "imported",
            "source_hub_id": header.hub_id.hex(),
            "source_stream": header.stream,
            "from_seq": header.from_seq,
            "to_seq": header.to_seq,
            "events": header.counts.events,
            "written": done.written,
            "found": done.found,
            "attachments": done.attachments,
            "target_stream": done.plan.target,
            "targets": [
                {"label": each.label.hex(), "from_seq": each.from_seq, "to_seq": each.to_seq}
                for each in done.targets
            ],
            "skipped_from": done.plan.skipped_from,
            "report_seq": done.report.stream_seq,
        }
    if outcome.skipped:
        return data | {"result": "skipped"}
    failure = outcome.failure
    return data | {"result": "refused", "code": outcome.code, "reason": str(failure)}


def _line(outcome: ImportOutcome) -> str:
    name = f"bundle {outcome.bundle_id.hex()[:16]}" if outcome.bundle_id is not None else "file"
    if (done := outcome.imported) is not None:
        header = done.plan.header
        if header.is_heartbeat:
            return f"{name}: heartbeat of {header.stream} after entry {header.to_seq}"
        resumed = f", {done.found} of them by an earlier run" if done.found else ""
        return (
            f"{name}: entries {header.from_seq} to {header.to_seq} of {header.stream} are in "
            f"{done.plan.target}{resumed}"
        )
    if outcome.skipped:
        return f"{name}: was imported before, skipped"
    return f"{name}: refused ({outcome.code}): {outcome.failure}"
