"""``veen query run``: ask a service, or read and query with one's own keys."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from veen_cli.arguments import private_files
from veen_cli.arguments.object_files import writable
from veen_cli.arguments.tls_files import load_tls
from veen_cli.evidence.verify import pinned_hub
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import witness_policy_file
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, escape_controls, plural
from veen_cli.query import rendering
from veen_cli.query.descriptor_options import describes_query, descriptor_of
from veen_cli.query.event_options import EventAccess, reads_events

if TYPE_CHECKING:
    from veen_core.tlog.policy import WitnessPolicy
    from veen_overlays.query.result.result_file import ResultFile
    from veen_overlays.query.verify.verification import ResultVerdict

NOT_PINNED: Final = "no hub is pinned: give --trust to check whose log this is"


@command(
    "veen query run --stream record/app/http --subject user:123 --evidence full --out result.veenq",
    "veen query run -s record/app/http --since 2026-11-18 --group-by event_type --count",
    "veen query run descriptor.json --service https://query.example --token-file auditor.token",
    "veen query run -s record/app/http --where payload.status=401 --format csv > failed.csv",
)
@describes_query
@click.option(
    "--service",
    envvar="VEEN_QUERY_SERVICE",
    show_envvar=True,
    help="Address of a query service; without it, the streams are read with your own keys.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    envvar="VEEN_QUERY_TOKEN_FILE",
    show_envvar=True,
    help="File with the bearer token for the service, mode 0600.",
)
@click.option(
    "--max-wait",
    type=click.IntRange(1, 86_400),
    default=3_600,
    show_default=True,
    metavar="SECONDS",
    help="Longest time to wait for the service's answer.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(rendering.FORMATS),
    default="table",
    show_default=True,
    help="Form of the rows; parquet needs --rows.",
)
@click.option(
    "--rows",
    "rows_file",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=writable,
    help="Write the rows to this file, not to stdout.",
)
@click.option(
    "--out",
    "target_file",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=writable,
    help="Write the result file: rows, digest, evidence and coverage, for `veen query verify`.",
)
@reads_events
def run(
    out: Output,
    *,
    access: EventAccess,
    item: dict[str, Any],
    service: str | None,
    token_file: Path | None,
    max_wait: int,
    form: str,
    rows_file: Path | None,
    target_file: Path | None,
) -> Answer:
    """Query recorded streams, through a service or with your own keys.

    DESCRIPTOR is a file with a QueryDescriptor ('-' is stdin); the options describe the common cases. With
    --service, the service reads the streams and records the query; its answer is verified before it is shown.
    Without it, the events are read from the hub, verified and opened with your keys, and kept in a view in
    the identity's folder, so the next query reads new events only. Such a query is not recorded.
    """
    if form == "parquet" and rows_file is None:
        raise click.UsageError("--format parquet needs --rows FILE.")
    for path in (rows_file, target_file):
        if path is not None and path.exists():
            raise CommandFailed(f"{path} exists already", Exit.USAGE, "choose another file")
    asked_at = time.time_ns() // 1_000_000
    if service is not None:
        file = loop.run(ask(service, item, token_file, max_wait, out))
    else:
        file = loop.run(execute(access, item))
    verdict = verified(file, access, asked_at, is_foreign=service is not None)
    # With one's own keys, the connection has pinned the hub.
    is_pinned = service is None or pinned_hub(click.get_current_context().params.get("trust")) is not None
    if not is_pinned:
        out.note(NOT_PINNED)
    if target_file is not None:
        private_files.write(target_file, file.encode())
    answer = _answer(out, file=file, verdict=verdict, form=form, rows_file=rows_file, target_file=target_file)
    return replace(answer, data={**answer.data, "pinned": is_pinned})


async def ask(
    service: str, item: dict[str, Any], token_file: Path | None, max_wait: int, out: Output
) -> ResultFile:
    """Submit a query to a service, wait, and fetch its result file; refuse the answer to another query."""
    from veen_cli.query import service_client  # noqa: PLC0415 - it loads aiohttp
    from veen_overlays.query.request.descriptor import normalise  # noqa: PLC0415 - as above
    from veen_overlays.query.result.result_file import parse_result  # noqa: PLC0415 - as above

    given = click.get_current_context().params
    tls = load_tls(given.get("ca"), given.get("cert"), given.get("cert_key"))
    token = service_client.read_token(token_file) if token_file is not None else None
    descriptor_of(item, "q-0")  # a wrong descriptor is refused here, and not sent
    try:
        async with (
            asyncio.timeout(max_wait),
            service_client.connected(service, token=token, context=tls.context() if tls else None) as client,
        ):
            with out.progress("waiting for the service"):
                accepted = await client.submit(item)
                await client.wait(accepted.result_id)
                file = parse_result(await client.file(accepted.result_id))
    except TimeoutError:
        raise CommandFailed(
            f"the service at {service} has not answered the query in {max_wait} s",
            Exit.NETWORK,
            "ask again later, or wait longer with --max-wait",
        ) from None
    asked = normalise(item, new_query_id=accepted.query_id)
    if file.descriptor_json != asked.canonical() or file.digest.result_id != accepted.result_id:
        raise CommandFailed(
            f"the service at {service} answered another query than the one that was sent",
            Exit.PROTOCOL,
            "do not rely on this answer; ask the service's operator",
        )
    return file


async def execute(access: EventAccess, item: dict[str, Any]) -> ResultFile:
    """Read the streams and execute a query with one's own keys."""
    from veen_overlays.query.engine import Budget  # noqa: PLC0415 - as above
    from veen_overlays.query.request.descriptor import query_id_of  # noqa: PLC0415 - most commands need none
    from veen_overlays.query.result.result_file import parse_result  # noqa: PLC0415 - as above

    descriptor = descriptor_of(item, query_id_of(os.urandom(16)))
    async with access.view(descriptor.scope) as backend:
        ends = await backend.ends(descriptor.scope)
        executed = await backend.execute(descriptor, ends, time.time_ns() // 1_000_000, Budget())
        return parse_result(executed.file(executed.digest))


def verified(file: ResultFile, access: EventAccess, asked_at: int, *, is_foreign: bool) -> ResultVerdict:
    """Verify a result against the pinned hub, the named hubs of other zones, and this machine's clock.

    The witness policy applies to a result of a service (``is_foreign``). Without a service, the connection
    has applied it to the hub's log, and events after the newest checkpoint count too.
    """
    from veen_overlays.query.verify.verification import ResultTrust, verify_result  # noqa: PLC0415 - as above

    policy = witness_policy() if is_foreign else None
    asked_between = asked_at, time.time_ns() // 1_000_000
    trust = ResultTrust(pinned=pinned_hubs(access), policy=policy, asked_between=asked_between)
    return verify_result(file, trust)


def witness_policy() -> WitnessPolicy | None:
    """Return the policy that --witnesses, its variable or the context names."""
    from veen_hub.client.hub_log import load_policy  # noqa: PLC0415 - as above

    path = witness_policy_file(click.get_current_context().params.get("witnesses"))
    return load_policy(path) if path is not None else None


def pinned_hubs(access: EventAccess) -> list[Any] | None:
    """Return the hubs that may appear in a coverage; None if none is pinned."""
    from veen_core.hub_identity import HubIdentity  # noqa: PLC0415 - as above

    pin = pinned_hub(click.get_current_context().params.get("trust"))
    if pin is None:
        return None
    return [pin, *(HubIdentity.decode(each.read_bytes()).hub_id for each in access.origins)]


def _answer(
    out: Output,
    *,
    file: ResultFile,
    verdict: ResultVerdict,
    form: str,
    rows_file: Path | None,
    target_file: Path | None,
) -> Answer:
    rows, digest = file.rows(), verdict.digest
    data: dict[str, Any] = {"digest": digest.as_json(), "descriptor": verdict.descriptor.as_json()}
    if form == "parquet":
        assert rows_file is not None
        rendering.write_parquet(rows, rows_file)
        lines: list[str] = []
    else:
        make = {"table": rendering.table_lines, "json": rendering.json_lines, "csv": rendering.csv_lines}[
            form
        ]
        lines = list(make(rows))
    if rows_file is not None and form != "parquet":
        private_files.write(rows_file, "".join(f"{line}\n" for line in lines).encode())
    if rows_file is None:
        data["rows"] = rows
    else:
        lines = []
    out.note(_summary(verdict, target_file))
    for source in digest.coverage:
        if not source.scanned:
            out.note(f"stream {escape_controls(source.stream)} has no entries; check the name")
    if out.quiet and not out.as_json:  # the rows are what was asked for
        for line in lines:
            click.echo(escape_controls(line))
    return Answer(data, lines)


def _summary(verdict: ResultVerdict, target_file: Path | None) -> str:
    digest = verdict.digest
    scanned = sum(source.scanned for source in digest.coverage)
    parts = [
        f"{plural(digest.row_count, 'row')} of {plural(scanned, 'entry', 'entries')}",
        f"{plural(verdict.receipts, 'receipt')} verified",
        f"rows_hash {digest.rows_hash[:16]}…",
    ]
    for name in ("unopened", "pruned"):
        if count := sum(getattr(source, name) for source in digest.coverage):
            parts.append(f"{count} {name}")
    return "; ".join(parts) + (f"; result in {target_file}" if target_file is not None else "")
