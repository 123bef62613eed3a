"""``veen query compare``: two results, or a result and the same query executed now (query-api-spec 9.1).

Exit codes: 0 the results agree; 3 they do not.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.query.event_options import EventAccess, reads_events
from veen_cli.query.verify import read_result

if TYPE_CHECKING:
    from veen_overlays.live.query_service.view_backend import ViewBackend
    from veen_overlays.query.request.descriptor import QueryDescriptor
    from veen_overlays.query.result.digest import ResultDigest
    from veen_overlays.query.verify.comparison import Result

REQUESTS: Final = "record/query/requests"
RESULTS: Final = "record/query/results"


@command(
    "veen query compare z1.veenq z2.veenq",
    "veen query compare z1.veenq --hub URL --trust HUB_ID --client auditor --origin z1-hub.cbor "
    "--held-in record/app/http=import/z1/app-http",
    "veen query compare --recorded q-3f… --hub URL --trust HUB_ID --client auditor",
)
@click.argument("first", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("second", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--recorded",
    metavar="QUERY_ID",
    help="Take descriptor and digest from record/query/requests and results, instead of a file.",
)
@reads_events
def compare(
    out: Output, *, access: EventAccess, first: Path | None, second: Path | None, recorded: str | None
) -> Answer:
    """Compare two results, or a result and the same query executed now.

    With one file, or with --recorded, the query is executed again over the same prefixes, with your keys. Two
    zones whose results agree have observed the same history for the queried streams. Nothing is verified
    here: `veen query verify` does that.
    """
    del out
    from veen_overlays.query.verify.comparison import compare as compared  # noqa: PLC0415 - most commands need none

    if (first is None) == (recorded is None) or (recorded is not None and second is not None):
        raise click.UsageError(
            "give two result files to compare, or one result file or --recorded QUERY_ID to compare "
            "with the same query executed now."
        )
    if first is not None and second is not None:
        one: Result = read_result(first)
        other: Result = read_result(second)
    elif first is not None:
        one = read_result(first)
        other = loop.run(_again(access, one.descriptor, one.digest))
    else:
        assert recorded is not None
        one, other = loop.run(_recorded(access, recorded))
    found = compared(one, other)
    data: dict[str, Any] = {
        "agree": found.agrees,
        "evidence_compared": found.evidence_compared,
        "differences": [asdict(each) for each in found.differences],
        "causes": [asdict(each) for each in found.causes],
        "digests": [_digest(each).as_json() for each in (one, other)],
    }
    if found.agrees:
        digest = _digest(one)
        what = "rows and evidence" if found.evidence_compared else "rows"
        lines = [f"✓ the results agree: {plural(digest.row_count, 'row')}, the same {what}"]
        return Answer(
            data, [*lines, f"  rows_hash      {digest.rows_hash}", f"  evidence_hash  {digest.evidence_hash}"]
        )
    lines = ["✗ the results differ", *(f"  {each}" for each in (*found.differences, *found.causes))]
    return Answer(data, lines, Exit.PROTOCOL)


def _digest(result: Result) -> ResultDigest:
    return result[1] if isinstance(result, tuple) else result.digest


async def _again(access: EventAccess, descriptor: QueryDescriptor, digest: ResultDigest) -> Result:
    async with access.view(descriptor.scope) as backend:
        return await _execute(backend, descriptor, digest)


async def _execute(backend: ViewBackend, descriptor: QueryDescriptor, digest: ResultDigest) -> Result:
    """Execute a query over the prefixes of an earlier result; refuse prefixes that leave out entries."""
    from veen_overlays.query.engine import Budget  # noqa: PLC0415 - as above
    from veen_overlays.query.result.result_file import parse_result  # noqa: PLC0415 - as above
    from veen_overlays.query.verify.completeness import check_complete  # noqa: PLC0415 - as above

    check_complete(descriptor, digest, backend.engine, backend.committed_at)
    ends = backend.ends_of([source.prefix for source in digest.coverage])
    executed = await backend.execute(descriptor, ends, time.time_ns() // 1_000_000, Budget())
    return parse_result(executed.file(executed.digest))


async def _recorded(access: EventAccess, query_id: str) -> tuple[Result, Result]:
    """Find a recorded descriptor and digest, and execute the query again."""
    from veen_overlays.query.request.descriptor import parse_descriptor  # noqa: PLC0415 - as above
    from veen_overlays.query.result.read_digest import read_digest  # noqa: PLC0415 - as above

    async with access.view((REQUESTS, RESULTS)) as backend:
        request = await _payload(backend, REQUESTS, "query.submitted", query_id)
        result = await _payload(backend, RESULTS, "query.result", query_id)
    descriptor = parse_descriptor(request.encode(), new_query_id=query_id)
    digest = read_digest(result.encode())
    return (descriptor, digest), await _again(access, descriptor, digest)


async def _payload(backend: ViewBackend, stream: str, event_type: str, query_id: str) -> str:
    """Return the payload of the record of a query in one of the streams of the Query API."""
    from veen_overlays.query import canonical_json  # noqa: PLC0415 - as above
    from veen_overlays.query.request.descriptor import normalise  # noqa: PLC0415 - as above

    item: dict[str, Any] = {
        "scope": [stream],
        "filter": {"event_type": [event_type]},
        "projection": ["payload"],
        "evidence": {"mode": "none"},
    }
    descriptor = normalise(item, new_query_id="q-0")
    answer = backend.engine.execute(descriptor, backend.engine.prefixes(descriptor.scope))
    for row in answer.rows:
        payload = row["payload"]
        if isinstance(payload, str) and query_id in payload:
            found: Any = canonical_json.decode(payload)
            if isinstance(found, dict) and found.get("query_id") == query_id:
                return payload
    raise CommandFailed(
        f"{stream} has no record of query {query_id} that your keys open",
        Exit.USAGE,
        "check the query_id, --reader, and --held-in for a stream that a bridge imported",
    )
