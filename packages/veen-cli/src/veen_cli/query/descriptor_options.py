"""The options that describe a query, and the descriptor that they make (query-api-spec §4)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from veen_cli.arguments.times import Moment
from veen_cli.frame.exits import CommandFailed, Exit

if TYPE_CHECKING:
    from veen_overlays.query.request.descriptor import QueryDescriptor

DEFAULT_FIELDS: Final = ("hub_commit_time", "event_type", "subject_id", "origin", "payload")
"""Fields of a row, unless --project names others."""


def _options(work: Callable[..., Any]) -> Callable[..., Any]:
    options: tuple[Callable[[Any], Any], ...] = (
        click.argument("descriptor", required=False, metavar="[DESCRIPTOR]"),
        click.option("--stream", "-s", "streams", multiple=True, help="Stream to query; repeatable."),
        click.option("--subject", help="Only events of this subject_id."),
        click.option("--type", "types", multiple=True, help="Only events of this event_type; repeatable."),
        click.option(
            "--since", "--from", "start", type=Moment(), help="Only events that the hub committed since then."
        ),
        click.option(
            "--until", "--to", "end", type=Moment(), help="Only events that the hub committed before then."
        ),
        click.option(
            "--where",
            "conditions",
            multiple=True,
            metavar="FIELD=VALUE",
            help="Only events with this value, such as payload.status=401; repeatable.",
        ),
        click.option(
            "--project",
            "fields",
            multiple=True,
            metavar="FIELD",
            help="Field of the rows, such as payload.path; repeatable, or separated by commas; * for all.",
        ),
        click.option(
            "--group-by", "groups", multiple=True, metavar="FIELD", help="One row per value; repeatable."
        ),
        click.option("--count", is_flag=True, help="Count the events, of each group or of all."),
        click.option(
            "--metric",
            "metrics",
            multiple=True,
            help="Another metric, such as 'max(event_time)' or 'sum(payload.bytes)'; repeatable.",
        ),
        click.option(
            "--evidence",
            type=click.Choice(["none", "spot", "full"]),
            help="Evidence: of no row, of a sample, or of every row [default: none].",
        ),
        click.option(
            "--sample-rate",
            type=float,
            help="Share of rows with evidence, for --evidence spot [default: 0.1].",
        ),
        click.option("--reason", help="Why you ask; it is recorded with the query."),
    )
    for option in reversed(options):
        work = option(work)
    return work


def describes_query(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a query to a command, which gets the descriptor as a JSON object, ``item``."""

    @wraps(work)
    def run(*args: Any, descriptor: str | None, reason: str | None, **options: Any) -> Any:
        names = (
            "streams",
            "subject",
            "types",
            "start",
            "end",
            "conditions",
            "fields",
            "groups",
            "count",
            "metrics",
            "evidence",
            "sample_rate",
        )
        given = {name: options.pop(name) for name in names}
        if descriptor is None:
            item = from_options(**given)
            if reason is not None:
                item["meta"] = {"reason": reason}
        else:
            if any(value not in ((), None, False) for value in given.values()) or reason is not None:
                raise click.UsageError(
                    "give a descriptor file, or options that describe the query; not both."
                )
            item = read_descriptor(descriptor)
        return work(*args, item=item, **options)

    return _options(run)


def read_descriptor(name: str) -> dict[str, Any]:
    """Read a descriptor from a file, or from stdin for ``-``."""
    from veen_overlays.query import canonical_json  # noqa: PLC0415 - most commands do not need it

    content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    item = canonical_json.decode(content)
    if not isinstance(item, dict):
        raise CommandFailed(f"{name} is not a JSON object", Exit.USAGE, "see `veen query run --help`")
    return item


def from_options(
    *,
    streams: tuple[str, ...],
    subject: str | None,
    types: tuple[str, ...],
    start: int | None,
    end: int | None,
    conditions: tuple[str, ...],
    fields: tuple[str, ...],
    groups: tuple[str, ...],
    count: bool,
    metrics: tuple[str, ...],
    evidence: str | None,
    sample_rate: float | None,
) -> dict[str, Any]:
    """Return the descriptor that the options describe."""
    if not streams:
        raise click.UsageError("name a stream with --stream, or give a descriptor file.")
    chosen: dict[str, Any] = {
        "subject_id": subject,
        "event_type": list(types) or None,
        "time": {"from": _timestamp(start), "to": _timestamp(end)},
    }
    if conditions:
        chosen["where"] = _conditions(conditions)
    grouped, measured = _split(groups), [*(["count"] if count else []), *metrics]
    item: dict[str, Any] = {"scope": list(streams), "filter": chosen, "projection": _split(fields)}
    if grouped or measured:
        item["aggregate"] = {"group_by": grouped, "metrics": measured or ["count"]}
    if not item["projection"]:
        item["projection"] = ["*"] if "aggregate" in item else list(DEFAULT_FIELDS)
    item["evidence"] = _evidence(evidence, sample_rate)
    return item


def _evidence(mode: str | None, sample_rate: float | None) -> dict[str, Any]:
    if mode == "spot":
        return {"mode": "spot", "sample_rate": 0.1 if sample_rate is None else sample_rate}
    if sample_rate is not None:
        raise click.UsageError("--sample-rate needs --evidence spot.")
    return {"mode": mode or "none"}


def _split(names: tuple[str, ...]) -> list[str]:
    return [name.strip() for each in names for name in each.split(",") if name.strip()]


def _timestamp(seconds: int | None) -> str | None:
    from veen_overlays.query.request.timestamp import format_timestamp  # noqa: PLC0415 - as above

    return None if seconds is None else format_timestamp(1_000 * seconds)


def _conditions(given: tuple[str, ...]) -> dict[str, list[Any]]:
    """Read ``FIELD=VALUE``; a value that is JSON is that value, anything else is text."""
    from veen_overlays.query import canonical_json  # noqa: PLC0415 - as above
    from veen_overlays.query.errors import QueryError  # noqa: PLC0415 - as above

    found: dict[str, list[Any]] = {}
    for each in given:
        field, sign, text = each.partition("=")
        if not sign:
            raise click.UsageError(f"--where {each!r}: write FIELD=VALUE, such as payload.status=401.")
        try:
            value: Any = canonical_json.decode(text)
        except QueryError:
            value = text
        found.setdefault(field, []).append(value)
    return found


def descriptor_of(item: dict[str, Any], new_query_id: str) -> QueryDescriptor:
    """Return the descriptor that the user asked for; a rule that it breaks is wrong usage (query-api §4)."""
    from veen_overlays.query.errors import QueryError  # noqa: PLC0415 - as above
    from veen_overlays.query.request.descriptor import normalise  # noqa: PLC0415 - as above

    try:
        return normalise(item, new_query_id=new_query_id)
    except QueryError as exc:
        raise CommandFailed(exc.message, Exit.USAGE, exc.action, reason=str(exc.code)) from None
