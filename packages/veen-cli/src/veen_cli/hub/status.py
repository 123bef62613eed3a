"""``veen hub status``, ``health`` and ``metrics``: what a running hub reports about itself."""

from __future__ import annotations

import dataclasses
import http.client
import json
import math
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from veen_cli.arguments import times
from veen_cli.frame import loop, settings
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields, plural
from veen_cli.hub.data_directory import data_dir_flag
from veen_cli.hub.keys import UNPINNED
from veen_core.status import Status
from veen_core.tlog.tree_head import SignedHead
from veen_hub.client import Tls, Unreachable
from veen_hub.client.trust import check_status
from veen_hub.client.wire.endpoints import Endpoints
from veen_hub.client.wire.retry import MIN_TRY_SECONDS, Retry, retrying
from veen_hub.client.wire.transport import Timeouts, no_answer
from veen_hub.client.wire.transport_choice import transport_to
from veen_storage.shards.sharded_source import open_hub

T = TypeVar("T")


async def ask(target: Target, call: Callable[[Endpoints], Awaitable[T]]) -> T:
    """Send a hub one request, without the client's checks; retry for ``--wait`` seconds."""
    transport = transport_to(target.url, tls=target.tls, timeouts=Timeouts())
    try:
        with target.out.progress(f"waiting for {target.url}"):
            timeout = Retry(max_attempts=1_000, deadline=target.wait)
            return await retrying(timeout, lambda: call(Endpoints(transport)), where=target.url)
    finally:
        await transport.close()


async def fetch_hub_checkpoint(target: Target) -> SignedHead | None:
    """Return the published hub checkpoint, not verified; None if the hub has none."""
    return await ask(target, Endpoints.hub_checkpoint)


async def fetch(target: Target) -> tuple[Status, bool]:
    """Return the hub's signed status, and whether it was verified against a pinned hub."""
    status = await ask(target, Endpoints.status)
    pinned = target.trust is not None or (
        target.folder is not None and target.folder.pin(target.url).exists()
    )
    check_status(status, target.pin if pinned else status.identity.hub_id)
    return status, pinned


@command(
    "veen hub status --hub http://127.0.0.1:8080",
    "veen hub status --trust HUB_ID --json",
    "veen hub status --data-dir hub",
)
@data_dir_flag("The hub's data directory, if it is on this machine: counts its entries.")
@connects
def status(out: Output, *, target: Target, data_dir: str | None) -> Answer:
    """Show the status of a running hub.

    The signature of the status is checked; with --trust, the hub must be the pinned one. A hub does not
    publish the number of its entries: they are counted with --data-dir only.
    """
    del out
    found, pinned = loop.run(fetch(target))
    data = {"url": target.url, "pinned": pinned, **json.loads(found.to_json())}
    counts = None
    if (named := settings.value_or_context("data_dir", data_dir)) is not None and Path(named).is_dir():
        counts = count_entries(Path(named))
        data |= {"entries": counts.entries, "labels": counts.labels}
    profile = found.profile
    return Answer(
        data,
        fields(
            {
                "hub_id": found.identity.hub_id.hex(),
                "trust": "this is the pinned hub" if pinned else UNPINNED,
                "entries": f"{counts.entries} in {plural(counts.labels, 'label')}" if counts else None,
                "keys": len(found.identity.hub_keys),
                "time": times.format_utc(found.hub_ts),
                "epoch": found.epoch if profile.epoch_sec else None,
                "gating": "on: writers need a token" if found.gating else "OFF: anybody may write",
                "signing": f"NO: {found.not_signing}" if found.not_signing else None,
                "memories": ", ".join(found.memories or ()) or None,
                "profile": f"{profile.profile_id.hex()[:16]}… ({_epochs(profile.epoch_sec)}, "
                f"padding to {profile.pad_block} bytes)",
                "proof of work": f"{found.pow_difficulty} bits" if found.pow_difficulty else "none",
                "enforces": ", ".join(found.enforces) or None,
                "cannot enforce": ", ".join(found.cannot_enforce) or None,
                "version": found.server_version,
            }
        ),
    )


def _epochs(seconds: int) -> str:
    return f"epochs of {times.format_duration(seconds)}" if seconds else "no epochs"


@dataclass(frozen=True, slots=True)
class EntryCounts:
    """The number of entries and labels in a data directory."""

    entries: int
    labels: int


def count_entries(data_dir: Path) -> EntryCounts:
    """Count the entries of all labels; the hub may be running."""
    entries, count, after = 0, 0, None
    with open_hub(data_dir) as hub:
        while labels := hub.labels(after):
            heads = (hub.of(each).read.head(each) for each in labels)
            entries += sum(head.stream_seq for head in heads if head is not None)
            count, after = count + len(labels), labels[-1]
    return EntryCounts(entries, count)


def get(target: Target, path: str) -> tuple[int, bytes]:
    """Send one GET without the client, which does not know these paths; ``--wait`` is the timeout."""
    where, timeout = urlsplit(target.url), max(MIN_TRY_SECONDS, target.wait)
    if where.scheme not in ("http", "https"):
        raise click.UsageError(f"--hub {target.url}: this command needs the hub's http or https address.")
    assert where.hostname is not None  # settings.parse_hub_url has checked it
    if where.scheme == "https":
        context = (target.tls or Tls()).context()
        link: http.client.HTTPConnection = http.client.HTTPSConnection(
            where.hostname, where.port, timeout=timeout, context=context
        )
    else:
        link = http.client.HTTPConnection(where.hostname, where.port, timeout=timeout)
    try:
        link.request("GET", where.path.rstrip("/") + path)
        answer = link.getresponse()
        return answer.status, answer.read()
    except TimeoutError as exc:
        raise Unreachable(f"{target.url}: no answer in {timeout:.1f} s") from exc
    except (OSError, ssl.SSLError, http.client.HTTPException) as exc:
        raise no_answer(target.url, exc, f"GET {path}") from exc
    finally:
        link.close()


def _probe(target: Target, path: str, flag: str) -> tuple[int, dict[str, Any]]:
    code, body = get(target, path)
    try:
        state = json.loads(body)
    except ValueError:
        state = None
    if not isinstance(state, dict):
        raise CommandFailed(
            f"{target.url}{path}: this is not the answer of a VEEN hub (HTTP {code})",
            Exit.PROTOCOL,
            f"check the address ({flag})",
        )
    return code, state


PROBES_ACTION: Final = (
    "check that the hub runs, and give the address of its probes (`probes` in hub.yaml) with --probes"
)

_probes_option = click.option(
    "--probes",
    envvar="VEEN_PROBES",
    help="Address of the hub's /readyz and /metrics [default: http, the hub's host, its port + 1].",
)


@contextmanager
def naming_probes() -> Iterator[None]:
    """Say that --probes names the address, if the probes cannot be reached."""
    try:
        yield
    except Unreachable as exc:
        raise Unreachable(exc.message, action=exc.action or PROBES_ACTION) from exc


def probes_target(target: Target, probes: str | None) -> Target:
    """Return where the hub serves /readyz and /metrics: as given, or on the port after its API's."""
    if probes is not None:
        return dataclasses.replace(target, url=settings.parse_hub_url(probes, "--probes"))
    where = urlsplit(target.url)
    if where.scheme not in ("http", "https"):
        raise click.UsageError(f"--hub {target.url}: give the http address of its probes with --probes.")
    port = (where.port or (443 if where.scheme == "https" else 80)) + 1
    host = f"[{where.hostname}]" if ":" in (where.hostname or "") else where.hostname
    return dataclasses.replace(target, url=f"http://{host}:{port}")


@command("veen hub health --hub http://127.0.0.1:8080")
@_probes_option
@connects
def health(out: Output, *, target: Target, probes: str | None) -> Answer:
    """Check once whether a hub is alive and ready.

    Exits with 4 if the hub is alive and not ready, with 2 if it does not answer within --wait. Readiness is
    served on the hub's probes address (--probes), which may be reachable only from the hub's own machine.
    """
    _, alive = _probe(target, "/healthz", "--hub")
    with naming_probes():
        code, ready = _probe(probes_target(target, probes), "/readyz", "--probes")
    answer = Answer(
        {"alive": bool(alive.get("ok")), "ready": code == 200, "why": ready.get("why"), "health": alive},
        [f"{target.url} is alive and {'ready' if code == 200 else 'NOT ready: ' + str(ready.get('why'))}"],
    )
    if code != 200:
        out.print_answer(answer)
        raise CommandFailed(f"the hub is not ready: {ready.get('why')}", Exit.REFUSED, "read the hub's log")
    return answer


@command("veen hub metrics --hub http://127.0.0.1:8080")
@_probes_option
@connects
def metrics(out: Output, *, target: Target, probes: str | None) -> Answer:
    """Print a hub's metrics.

    The format is Prometheus text; with --json it is a list of samples with name, labels and value. Metrics
    are served on the hub's probes address (--probes), which may be reachable only from the hub's own machine.
    """
    target = probes_target(target, probes)
    with naming_probes():
        code, body = get(target, "/metrics")
    if code != 200:
        raise CommandFailed(
            f"{target.url}/metrics: HTTP {code}",
            Exit.PROTOCOL,
            PROBES_ACTION,
        )
    text = body.decode("utf-8", "replace")
    samples = [_sample(line) for line in text.splitlines() if line and not line.startswith("#")]
    if out.quiet and not out.as_json:
        click.echo(text, nl=False)
    return Answer({"url": target.url, "samples": samples}, text.splitlines())


_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def _sample(line: str) -> dict[str, Any]:
    """Parse ``name{label="value"} number``; infinity and NaN become null."""
    series, _, value = line.rpartition(" ")
    name, _, labels = series.partition("{")
    number = float(value)
    return {
        "name": name,
        "labels": {key: json.loads(f'"{text}"') for key, text in _LABEL.findall(labels)},
        "value": number if math.isfinite(number) else None,
    }
