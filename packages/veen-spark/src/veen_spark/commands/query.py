"""``veen spark query``: the Query API over logs of any size."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from veen_cli.frame import Answer, CommandFailed, Exit, Integer, Output, command, plural
from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_spark.commands.paths import log_paths, require_paths
from veen_spark.commands.query_sql import DEFAULT_ROWS, cell
from veen_spark.commands.readers import reader_keys
from veen_spark.commands.session import hub_id, session, session_options
from veen_spark.commands.verify import read_identity
from veen_spark.functions.reader_keys import ReaderKeys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veen_overlays.query.request.descriptor import QueryDescriptor
    from veen_overlays.query.result.coverage import Prefix
    from veen_overlays.query.result.digest import ResultDigest
    from veen_overlays.query.result.result_file import ResultFile
    from veen_spark.query.event_view import EventView

_USAGE_STATUS: Final = 500
"""A query error with a lower HTTP status is the user's to correct (query-api §7.6)."""


def _held_in(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if bad := [name for name, _, held in pairs if not name or not held]:
        raise click.BadParameter(f"{bad[0]!r} is not of the form STREAM=IMPORT_STREAM")
    return {name: held for name, _, held in pairs}


@command(
    "veen spark query exports/login --descriptor failures.json --reader reader/ --hub-id 62c1…",
    "veen spark query clone/ --descriptor failures.json --reader reader/ --out failures.veenq --json",
    name="query",
)
@log_paths
@click.option(
    "--descriptor",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The query: a QueryDescriptor in JSON.",
)
@click.option(
    "--reader",
    "--key",
    "readers",
    multiple=True,
    type=click.Path(path_type=Path),
    help="File or folder with a reader key, under the same path on every executor; may be repeated.",
)
@click.option("--hub-id", "pinned", multiple=True, type=hub_id, help="A hub that may have signed the logs.")
@click.option(
    "--identity",
    "identities",
    multiple=True,
    type=click.Path(path_type=Path),
    help="hub-identity.cbor of a hub: for a view, and for hubs whose events a bridge has imported.",
)
@click.option(
    "--held-in",
    "held_in",
    multiple=True,
    callback=_held_in,
    metavar="STREAM=IMPORT_STREAM",
    help="The import stream that holds the events of a stream of another hub; needs that hub's --identity.",
)
@click.option(
    "--origin-epoch",
    type=Integer(0),
    default=0,
    show_default=True,
    help="Epoch length, in seconds, of the hubs whose events a bridge has imported; 0: no epochs.",
)
@click.option(
    "--resealed",
    is_flag=True,
    help="A bridge has resealed the imported events (mode reseal); PATHS must include its audit log.",
)
@click.option(
    "--at",
    "earlier",
    type=click.Path(path_type=Path),
    help="Read exactly as far as this result file (.veenq), even if the logs have grown since.",
)
@click.option(
    "--out", "target", type=click.Path(path_type=Path), help="New result file (.veenq) with the evidence."
)
@click.option(
    "--limit", type=Integer(1), default=DEFAULT_ROWS, show_default=True, help="Largest number of rows shown."
)
@session_options
def query(
    out: Output,
    *,
    paths: tuple[str, ...],
    descriptor: Path,
    readers: tuple[Path, ...],
    pinned: tuple[HubId, ...],
    identities: tuple[Path, ...],
    held_in: dict[str, str],
    origin_epoch: int,
    resealed: bool,
    earlier: Path | None,
    target: Path | None,
    limit: int,
    master: str,
    conf: dict[str, str],
    verbose: bool,
) -> Answer | None:
    """Answer a query of the Query API from the logs at PATHS, with its evidence.

    Every signature, hash and root of the logs is verified before any entry is opened. Rows and digests are
    those of every other engine. With --out, the rows, the digest and the evidence are written to one file,
    which 'veen query verify' verifies offline.
    """
    keys = reader_keys(readers)
    given = [read_identity(path) for path in identities]
    if target is not None and target.exists():
        raise CommandFailed(f"{target} exists already", Exit.USAGE, "choose another file")
    if resealed and not (held_in and given):
        raise CommandFailed(
            "--resealed needs the import stream and the hub that the events come from",
            Exit.USAGE,
            "give --held-in and --identity",
        )
    with _query_errors():
        wanted = _descriptor(descriptor)
        prefixes = None if earlier is None else _prefixes(earlier)
    require_paths(paths, master)
    with session(out, master, conf, verbose=verbose) as spark, _query_errors():
        from veen_spark.query.evidence import run_query  # noqa: PLC0415 - loads pyspark

        logs = _Logs(paths, keys, pinned, given, held_in, origin_epoch, resealed)
        view = _view(spark, logs, wanted)
        result = run_query(view, wanted, executed_at=time.time_ns() // 1_000_000, prefixes=prefixes)
        content = None if target is None else _encoded(result)
    if target is not None and content is not None:
        from veen_hub.client import replace_file  # noqa: PLC0415 - --help needs none

        replace_file(target.absolute(), content)
    return _show(out, result, target, limit)


@contextmanager
def _query_errors() -> Iterator[None]:
    """Convert errors of the Query API; those that the user can correct become usage errors."""
    from veen_overlays.query.errors import QueryError  # noqa: PLC0415 - --help needs none

    try:
        yield
    except QueryError as exc:
        code = Exit.USAGE if exc.status < _USAGE_STATUS else Exit.PROTOCOL
        raise CommandFailed(f"{exc.code}: {exc.message}", code, exc.action) from exc


def _descriptor(path: Path) -> QueryDescriptor:
    from veen_overlays.query.request.descriptor import parse_descriptor, query_id_of  # noqa: PLC0415 - as above

    return parse_descriptor(path.read_bytes(), new_query_id=query_id_of(secrets.token_bytes(16)))


def _prefixes(path: Path) -> Sequence[Prefix]:
    """Return the prefixes that an earlier result has read, without their hub checkpoints."""
    from dataclasses import replace  # noqa: PLC0415 - --help needs none

    from veen_overlays.query.result.result_file import parse_result  # noqa: PLC0415 - as above

    try:
        coverage = parse_result(path.read_bytes()).digest.coverage
    except VeenError as exc:
        raise CommandFailed(f"{path}: {exc.message}", Exit.PROTOCOL, "name a .veenq file") from exc
    return [replace(source.prefix, checkpoint=None) for source in coverage]


class _Logs(NamedTuple):
    """The logs or the view to read, and the keys and identities that open and verify them."""

    paths: tuple[str, ...]
    keys: ReaderKeys | None
    pinned: tuple[HubId, ...]
    identities: list[HubIdentity]
    held_in: dict[str, str]
    origin_epoch: int
    resealed: bool


def _view(spark: SparkSession, logs: _Logs, wanted: QueryDescriptor) -> EventView:
    from veen_spark.query.log_rows import OriginTerms  # noqa: PLC0415 - loads pyspark
    from veen_spark.query.log_view import view_of_logs  # noqa: PLC0415 - as above
    from veen_spark.query.view_folder import is_view, read_view  # noqa: PLC0415 - as above

    given, paths = logs.identities, logs.paths
    if any(is_view(Path(path)) for path in paths):
        if len(paths) > 1:
            raise CommandFailed(
                "a view cannot be read together with other paths", Exit.USAGE, "name one view, or logs only"
            )
        return read_view(spark, Path(paths[0]), wanted.scope, _pinned_only(given, logs.pinned))
    origins = [OriginTerms(identity=each, epoch_sec=logs.origin_epoch) for each in given]
    return view_of_logs(
        spark,
        paths,
        wanted.scope,
        logs.keys,
        pinned=logs.pinned,
        identity=given[0] if given and not logs.held_in else None,
        held_in=logs.held_in,
        origins=origins if logs.held_in else (),
        resealed=logs.resealed,
    )


def _pinned_only(given: list[HubIdentity], pinned: tuple[HubId, ...]) -> list[HubIdentity]:
    for identity in given:
        if pinned and identity.hub_id not in pinned:
            raise CommandFailed(
                f"the given identity belongs to hub {identity.hub_id.hex()}, which is not pinned",
                Exit.PROTOCOL,
                "do not rely on this view; ask the operator of the hub",
            )
    return given


def _encoded(result: ResultFile) -> bytes:
    from veen_overlays.query.errors import QueryError, QueryErrorCode  # noqa: PLC0415 - --help needs none
    from veen_overlays.query.result.result_file import MAX_RESULT_BYTES  # noqa: PLC0415 - as above

    content = result.encode()
    if len(content) > MAX_RESULT_BYTES:
        raise QueryError(
            QueryErrorCode.LIMIT_EXCEEDED,
            f"the result file has {len(content)} bytes, at most {MAX_RESULT_BYTES} are allowed",
            action="narrow the filter, or ask for less evidence",
        )
    return content


# --- output


def _show(out: Output, result: ResultFile, target: Path | None, limit: int) -> Answer | None:
    digest, rows = result.digest, result.rows()
    written = {} if target is None else {"out": str(target)}
    if out.as_json:
        shown = {"rows": rows[:limit], "more": len(rows) > limit}
        return Answer({"result_digest": digest.as_json(), **shown, **written})
    names = list(dict.fromkeys(name for row in rows[:limit] for name in row))
    if not out.quiet and names:
        click.echo("\t".join(names))
    for row in rows[:limit]:
        click.echo("\t".join(cell(row.get(name)) for name in names))
    if len(rows) > limit:
        click.echo(f"there are {len(rows)} rows; raise --limit to see more", err=True)
    if not out.quiet:
        for line in _summary(digest, target):
            click.echo(line, err=True)
    return None


def _summary(digest: ResultDigest, target: Path | None) -> Iterator[str]:
    for source in digest.coverage:
        counts = f"{source.scanned} scanned, {source.matched} matched"
        kept = "".join(
            f", {number} {name}" for name in ("unopened", "pruned") if (number := getattr(source, name))
        )
        yield f"{source.stream} at hub {source.hub_id.hex()[:16]}…, epoch {source.epoch}: {counts}{kept}"
    yield f"{plural(digest.row_count, 'row')}, rows_hash {digest.rows_hash}"
    yield f"result {digest.result_id}, evidence_hash {digest.evidence_hash}"
    if target is not None:
        yield f"written to {target}"
