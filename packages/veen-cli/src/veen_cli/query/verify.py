"""``veen query verify``: verify a result file offline; with the log, execute the query again.

Exit codes: 0 the result verifies; 3 it does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from veen_cli.evidence.verify import pinned_hub
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, escape_controls
from veen_cli.query.event_options import EventAccess, reads_events
from veen_cli.query.run import NOT_PINNED, pinned_hubs, witness_policy

if TYPE_CHECKING:
    from veen_overlays.query.result.result_file import ResultFile

DIGEST_STATEMENTS: Final = (
    "executed_at, hub_id and profile_id of the digest are what the executor says: no hash and no signature "
    "of the file covers them."
)
SOURCES_NOT_LISTED: Final = (
    "Nothing in a file lists the epochs and hubs of a stream: the coverage may leave some out. --execute "
    "looks for them in the log."
)


def read_result(path: Path) -> ResultFile:
    """Read a result file; nothing is verified."""
    from veen_core.errors import DecodeError  # noqa: PLC0415 - most commands do not need it
    from veen_overlays.query.result.result_file import parse_result  # noqa: PLC0415 - as above

    try:
        return parse_result(path.read_bytes())
    except DecodeError as exc:
        raise CommandFailed(
            f"{path} is not a query result: {exc}", Exit.PROTOCOL, f"run `veen inspect {path}`"
        ) from None


@command(
    "veen query verify result.veenq --trust HUB_ID",
    "veen query verify result.veenq --trust HUB_ID --receipt mine.receipt",
    "veen query verify result.veenq --execute --hub URL --trust HUB_ID --client auditor",
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--receipt",
    "receipts",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Receipt that you hold: a result that ends before it is refused as too old; repeatable.",
)
@click.option(
    "--execute", is_flag=True, help="Read the log, open the events with your keys, and execute again."
)
@reads_events
def verify(
    out: Output, *, access: EventAccess, file: Path, receipts: tuple[Path, ...], execute: bool
) -> Answer:
    """Verify a result file without a service; with the log, execute it again.

    Checks the rows against rows_hash, every receipt and its position in the log against the roots that
    the pinned hub signed, the coverage, and evidence_hash, which commits to all of it. Only a reader of the
    log can check what the messages say and which of them match: --execute does.
    """
    from veen_core.errors import DecodeError, VerificationError  # noqa: PLC0415 - as above
    from veen_core.receipt import Receipt  # noqa: PLC0415 - as above
    from veen_overlays.query.verify.verification import ResultTrust, verify_result  # noqa: PLC0415 - as above

    result, given = read_result(file), click.get_current_context().params
    trust = ResultTrust(
        pinned=pinned_hubs(access),
        policy=witness_policy(),
        known=[Receipt.decode(each.read_bytes()) for each in receipts],
    )
    try:
        verdict = verify_result(result, trust)
        steps = list(verdict.steps)
        if execute:
            loop.run(_execute(access, result))
            steps.append("the log gives the same rows when the query is executed again")
    except (VerificationError, DecodeError) as exc:
        data: dict[str, Any] = {"file": str(file), "ok": False, "why": str(exc)}
        return Answer(data, [f"✗ {file}: {exc}"], Exit.PROTOCOL)
    pin = pinned_hub(given.get("trust"))
    notes = [] if pin is not None else [NOT_PINNED]
    limits = [each["means"] for each in verdict.digest.limits]
    limits += [DIGEST_STATEMENTS, *([] if execute else [SOURCES_NOT_LISTED])]
    data = {
        "file": str(file),
        "ok": True,
        "pinned": pin is not None,
        "executed": execute,
        "steps": steps,
        "limits": limits,
        "digest": verdict.digest.as_json(),
    }
    lines = [f"✓ {file}: {verdict.descriptor.query_id}", *(f"  {escape_controls(step)}" for step in steps)]
    lines += [f"  not proved: {means}" for means in limits]
    out.note("\n".join(notes)) if notes else None
    return Answer(data, lines)


async def _execute(access: EventAccess, result: ResultFile) -> None:
    import asyncio  # noqa: PLC0415 - only here

    from veen_overlays.query.verify.completeness import check_complete  # noqa: PLC0415 - as above
    from veen_overlays.query.verify.reexecution import reexecute  # noqa: PLC0415 - as above

    async with access.view(result.descriptor.scope) as backend:
        check_complete(result.descriptor, result.digest, backend.engine, backend.committed_at)
        await asyncio.to_thread(reexecute, result, backend.engine)
