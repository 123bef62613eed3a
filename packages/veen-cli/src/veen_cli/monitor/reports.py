"""What ``veen monitor`` prints: a line per finding that begins or ends, or a summary of one round."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any

import click

from veen_cli.arguments import times
from veen_cli.frame.exits import Exit
from veen_cli.frame.output import Answer, Output, escape_controls, json_text, plural
from veen_hub.monitor.findings import FindingChange, Key, OpenFinding
from veen_hub.monitor.hub_monitor import HubMonitor
from veen_hub.monitor.monitor import Monitor


def finding_dict(found: OpenFinding) -> dict[str, Any]:
    finding = found.finding
    return {
        "key": finding.key.value,
        "subject": finding.subject or None,
        "message": finding.message,
        "proven": found.is_proven,
        "evidence": str(found.file) if found.file is not None else None,
        "since": found.since,
    }


def finding_line(found: OpenFinding, hub_id: str | None) -> str:
    """Return key and message; for a proven finding, also how a third party verifies it."""
    line = f"{found.finding.key}: {found.finding.message}"
    if found.file is None:
        return line
    return f"{line}; evidence: veen verify {quote(str(found.file))} --trust {hub_id}"


def hub_id_of(hub: HubMonitor) -> str | None:
    record = hub.memory.record
    return record.identity.hub_id.hex() if record is not None else None


class EventPrinter:
    """Prints findings as they begin and end."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def print_change(self, hub: HubMonitor, change: FindingChange) -> None:
        self._print(hub, "began" if change.began else "ended", change.found)

    def print_open(self, hub: HubMonitor) -> None:
        """Print the findings of earlier runs, which have not ended."""
        for found in hub.findings:
            self._print(hub, "open", found)

    def _print(self, hub: HubMonitor, event: str, found: OpenFinding) -> None:
        hub_id, now = hub_id_of(hub), times.now()
        if self._out.as_json:
            data = {"event": event, "time": now, "hub": hub.url, "hub_id": hub_id, **finding_dict(found)}
            click.echo(json_text(data))
            return
        words = {
            "began": finding_line(found, hub_id),
            "ended": f"ended: {found.finding.key}, since {times.format_utc(found.since)}",
            "open": f"since {times.format_utc(found.since)}: {finding_line(found, hub_id)}",
        }
        click.echo(escape_controls(f"{times.format_utc(now)}  {hub.url}  {words[event]}"))


def summary(monitor: Monitor) -> Answer:
    """Return the result of one round, with the exit code that an alert depends on."""
    found = set(monitor.open_keys())
    code = Exit.OK if not found else Exit.NETWORK if found == {Key.UNREACHABLE} else Exit.PROTOCOL
    data = {
        "holds": not found,
        "hubs": [_hub_dict(hub) for hub in monitor.hubs],
        "unclaimed": sorted(monitor.unclaimed),
    }
    lines = [line for hub in monitor.hubs for line in _hub_lines(hub)]
    lines += [
        f"? {name}: has a receipt that none of these hubs signed, so it was not compared"
        for name in sorted(monitor.unclaimed)
    ]
    return Answer(data, lines, code)


def _hub_dict(hub: HubMonitor) -> dict[str, Any]:
    record, held = hub.memory.record, hub.memory.held
    return {
        "hub": hub.url,
        "hub_id": hub_id_of(hub),
        "origin": record.origin if record is not None else None,
        "size": held.head.size if held is not None else None,
        "root": held.head.root.hex() if held is not None else None,
        "checked": hub.memory.checked,
        "labels": record.labels if record is not None else 0,
        "quorum_at": record.quorum_at if record is not None else None,
        "findings": [finding_dict(found) for found in hub.findings],
        "unlisted": dict(_unlisted(hub)),
    }


def _hub_lines(hub: HubMonitor) -> Iterator[str]:
    found = list(hub.findings)
    held, record = hub.memory.held, hub.memory.record
    if held is None or record is None:
        about = "no hub checkpoint yet"
    else:
        rest = "" if record.checked == held.head.size else f", {record.checked} of them checked"
        about = f"{plural(held.head.size, 'entry', 'entries')}{rest}, {plural(record.labels, 'label')}"
    quorum = record.quorum_at if record is not None else None
    cosigned = f", cosigned by a quorum at {times.format_utc(quorum)}" if quorum is not None else ""
    result = f", {plural(len(found), 'finding')}" if found else ""
    yield f"{'✗' if found else '✓'} {hub.url}: {about}{cosigned}{result}"
    for each in found:
        yield f"    {finding_line(each, hub_id_of(hub))}"
    for key, count in _unlisted(hub):
        yield f"    {key}: {count} more, which are not listed"


def _unlisted(hub: HubMonitor) -> Iterator[tuple[str, int]]:
    """Yield how many findings of each key are counted only."""
    for key in Key:
        if count := hub.findings.count_unlisted(key):
            yield key.value, count
