"""``veen monitor``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import completions
from veen_cli.arguments.numbers import Seconds
from veen_cli.arguments.tls_files import load_tls
from veen_cli.frame import loop, settings
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import witness_policy_file, witnesses_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.monitor.reports import EventPrinter, summary
from veen_hub.client import Tls
from veen_hub.client.hub_log import load_policy
from veen_hub.monitor.evidence_files import EvidenceFiles
from veen_hub.monitor.findings import FindingChange
from veen_hub.monitor.hub_identification import HubTrust
from veen_hub.monitor.hub_monitor import DEFAULT_GRACE_SEC, HubMonitor, MonitorSettings
from veen_hub.monitor.metrics import MetricsListener, MonitorMetrics
from veen_hub.monitor.monitor import Monitor, MonitorState
from veen_hub.monitor.sightings import SeenFiles
from veen_hub.ops.config.addresses import split_address
from veen_hub.ops.stopping import stop_event
from veen_storage import LockedError

DEFAULT_INTERVAL_SEC: Final = 10.0
MIN_INTERVAL_SEC: Final = 0.1
DEFAULT_EVIDENCE: Final = "veen-evidence"
NO_STATE: Final = "without --state, a rollback between two runs is not found"


class Address(click.ParamType[tuple[str, int]]):
    """``HOST:PORT``; a host with colons is written in brackets."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        try:
            return split_address(str(value))
        except ValueError as exc:
            self.fail(f"{exc}, such as 127.0.0.1:9600", param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorJob:
    """What to monitor."""

    urls: Sequence[str]
    settings: MonitorSettings
    state: MonitorState
    seen: SeenFiles
    tls: Tls | None
    out: Output

    @asynccontextmanager
    async def start(self, printer: EventPrinter | None) -> AsyncIterator[tuple[Monitor, MonitorMetrics]]:
        """Make the monitor; ``printer`` prints each change."""
        metrics = MonitorMetrics()

        def report(hub: HubMonitor, change: FindingChange) -> None:
            metrics.count(hub, change)
            if printer is not None:
                printer.print_change(hub, change)

        monitor = Monitor(self.urls, self.state, self.settings, seen=self.seen, tls=self.tls, report=report)
        metrics.watch(monitor)
        try:
            yield monitor, metrics
        finally:
            await monitor.close()


@command(
    "veen monitor https://hub.example --trust HUB_ID --state monitor",
    "veen monitor https://a.example https://b.example --witnesses policy.txt --state monitor",
    "veen monitor https://hub.example --trust HUB_ID --seen alice --once --json",
)
@click.argument("urls", nargs=-1, metavar="[URL]…", envvar="VEEN_HUB")
@click.option(
    "--trust",
    multiple=True,
    envvar="VEEN_TRUST",
    show_envvar=True,
    help="A hub's hub_id or first hub_pk in hex, or 'first' to pin the hub that answers; repeatable.",
)
@witnesses_option
@click.option(
    "--state",
    type=click.Path(file_okay=False),
    help="Folder for the monitor's memory; without it, a rollback between two runs is not found.",
)
@click.option(
    "--seen",
    multiple=True,
    type=click.Path(),
    shell_complete=completions.files,
    help="Receipts or evidence that clients kept, or their folders; repeatable.",
)
@click.option(
    "--interval",
    type=Seconds(MIN_INTERVAL_SEC),
    default=DEFAULT_INTERVAL_SEC,
    show_default=True,
    help="Seconds between two rounds.",
)
@click.option("--once", is_flag=True, help="Make one round and exit with its result.")
@click.option("--metrics", "metrics_at", type=Address(), help="Serve Prometheus metrics at this address.")
@click.option(
    "--evidence",
    type=click.Path(file_okay=False),
    help="Folder for evidence; default: inside --state, else veen-evidence.",
)
@click.option(
    "--grace",
    type=Seconds(),
    default=DEFAULT_GRACE_SEC,
    show_default=True,
    help="Seconds that a hub may take to publish what it has acknowledged.",
)
@click.option("--ca", type=click.Path(exists=True), help="PEM file of the authority to trust (TLS).")
@click.option("--cert", type=click.Path(exists=True), help="PEM file of the client certificate (TLS).")
@click.option("--cert-key", type=click.Path(exists=True), help="PEM file of that certificate's key.")
def monitor(
    out: Output,
    *,
    urls: tuple[str, ...],
    trust: tuple[str, ...],
    witnesses: str | None,
    state: str | None,
    seen: tuple[str, ...],
    interval: float,
    once: bool,
    metrics_at: tuple[str, int] | None,
    evidence: str | None,
    grace: float,
    ca: str | None,
    cert: str | None,
    cert_key: str | None,
) -> Answer | None:
    """Follow the logs of hubs, and prove what contradicts them.

    Each round checks that the hub's checkpoint extends those before it, that every head of every label
    extends the one before, that the hub log covers what clients have seen (--seen), and that witnesses have
    cosigned the same log (--witnesses). Evidence of a fork is written to a file that `veen verify` accepts
    offline. One line is printed when a finding begins and one when it ends.

    Without URL, the hub of VEEN_HUB or of the context is monitored.

    Exit codes of --once: 0: everything holds; 2: only unreachable hubs or witnesses; 3: any other finding.
    """
    if once and metrics_at is not None:
        raise click.UsageError("--metrics has no effect with --once: give one of them.")
    setup = MonitorSetup.chosen(urls, trust, state, evidence)
    path = witness_policy_file(witnesses)
    policy = load_policy(path) if path is not None else None
    with open_state(setup.state) as memory:
        trusted = HubTrust(pins=setup.pins, policy=policy)
        _check_pinned(setup.urls, trusted, memory)
        job = MonitorJob(
            urls=setup.urls,
            settings=MonitorSettings(trust=trusted, evidence=EvidenceFiles(setup.evidence), grace_sec=grace),
            state=memory,
            seen=SeenFiles([Path(each).expanduser() for each in seen]),
            tls=load_tls(
                settings.value_or_context("ca", ca),
                settings.value_or_context("cert", cert),
                settings.value_or_context("cert_key", cert_key),
            ),
            out=out,
        )
        job.seen.check()
        if setup.state is None:
            out.note(f"note: {NO_STATE}")
        if once:
            return loop.run(_run_once(job))
        return loop.run(_run(job, interval, metrics_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSetup:
    """Addresses, pins and folders, from flags, variables and the context."""

    urls: tuple[str, ...]
    pins: frozenset[str]
    state: Path | None
    evidence: Path

    @classmethod
    def chosen(
        cls, urls: Sequence[str], trust: Sequence[str], state: str | None, evidence: str | None
    ) -> MonitorSetup:
        """Without an address, the context's hub is monitored, with the context's pin."""
        if not urls:
            if (url := settings.value_or_context("hub", None)) is None:
                raise click.UsageError(
                    "URL is missing: give a hub's address, set VEEN_HUB, or use a context that has one."
                )
            pin = settings.value_or_context("trust", None)
            urls, trust = [url], trust or ([pin] if pin is not None else [])
        pins = frozenset(filter(None, map(settings.parse_trust, trust)))
        if settings.FIRST in pins and len(pins) > 1:
            raise click.UsageError(
                "--trust first accepts any hub and cancels the other pins: give 'first' or the pins."
            )
        folder = Path(state).expanduser() if state is not None else None
        default = folder / "evidence" if folder is not None else Path(DEFAULT_EVIDENCE)
        return cls(
            urls=tuple(dict.fromkeys(settings.parse_hub_url(url, "URL").rstrip("/") for url in urls)),
            pins=pins,
            state=folder,
            evidence=Path(evidence).expanduser() if evidence is not None else default,
        )


def open_state(folder: Path | None) -> MonitorState:
    try:
        return MonitorState(folder)
    except LockedError as exc:
        raise CommandFailed(
            f"another process uses {folder}: {exc.message}",
            Exit.USAGE,
            "stop the other monitor, or give this one a --state folder of its own",
        ) from None


def _check_pinned(urls: Sequence[str], trust: HubTrust, state: MonitorState) -> None:
    """Refuse to monitor a hub that nothing names (core §8.4)."""
    for url in urls:
        if not trust.names_hubs and not state.knows(url):
            raise CommandFailed(
                f"no hub is pinned for {url}",
                Exit.POLICY,
                "give --trust HUB_ID (the hub's operator prints it with `veen hub keys`), a witness policy "
                "that names the hub's log, or --trust first to pin the hub that answers now",
            )


async def _run_once(job: MonitorJob) -> Answer:
    async with job.start(None) as (monitor, _metrics):
        with job.out.progress(
            "checking entries", counted=lambda: sum(hub.memory.checked for hub in monitor.hubs)
        ):
            await monitor.run_once()
        return summary(monitor)


async def _run(job: MonitorJob, interval: float, metrics_at: tuple[str, int] | None) -> None:
    stopping = stop_event()
    printer = EventPrinter(job.out)
    async with job.start(printer) as (monitor, metrics), _listening(metrics, metrics_at) as url:
        served = f", metrics at {url}" if url is not None else ""
        hubs = plural(len(monitor.hubs), "hub")
        job.out.note(f"monitoring {hubs} every {interval:g} s{served}; stop it with Ctrl-C")
        for hub in monitor.hubs:
            printer.print_open(hub)
        await monitor.run(interval, stopping, _LocalFailures(metrics).note)


@asynccontextmanager
async def _listening(metrics: MonitorMetrics, at: tuple[str, int] | None) -> AsyncIterator[str | None]:
    if at is None:
        yield None
        return
    listener = MetricsListener(metrics, *at)
    url = await listener.start()
    try:
        yield url
    finally:
        await listener.stop()


class _LocalFailures:
    """Failures of this machine: each is printed once on stderr until a round succeeds."""

    def __init__(self, metrics: MonitorMetrics) -> None:
        self._metrics = metrics
        self._last: str | None = None

    def note(self, why: str | None) -> None:
        if why is not None:
            self._metrics.count_failure()
            if why != self._last:
                click.echo(f"veen: a round failed on this machine: {why}", err=True)
        self._last = why
