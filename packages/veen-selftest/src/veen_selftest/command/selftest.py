"""``veen selftest``: test a hub through its public API.

Exit codes: 0 every check that ran passed; 5 a check failed, or more were skipped than passed; 1 wrong usage;
2 no hub answers; 4 the hub refuses the admin key; 70 a bug; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click

from veen_cli.frame import (
    Answer,
    Command,
    Exit,
    Integer,
    Output,
    Seconds,
    command,
    load_tls,
    passphrase_option,
    writable,
)
from veen_hub.load import table as clients_table
from veen_selftest.command.log_lines import ResultLines
from veen_selftest.command.target import choose_hub, make_fleet
from veen_selftest.runner import report as reports
from veen_selftest.runner import suite as suites
from veen_selftest.runner.check import Check
from veen_selftest.runner.context import RunOptions
from veen_selftest.runner.load_profile import table as profile_table
from veen_selftest.runner.suite import CheckResult, RunReport

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_SEED: Final = 2**63 - 1
MIN_HISTORY: Final = 2_000
EXAMPLES: Final = (
    "veen selftest core",
    "veen selftest core fuzz --hub http://127.0.0.1:8080 --admin-key admin",
    "veen selftest all --junit selftest.xml --seed 7",
    "veen selftest trust --rounds 500",
    "veen selftest perf --quick --json",
)


class SelftestCommand(Command):
    """A command whose help also lists the suites."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Suites"):
            formatter.write_dl([*suites.SUITES.items(), ("all", "all suites")])
        super().format_epilog(ctx, formatter)


class ProgressPrinter:
    """Prints each result as it comes and, on a terminal, the check that is running."""

    def __init__(self, out: Output, total: int, log: ResultLines | None = None) -> None:
        """``log``: print results as log lines, for a container."""
        self._lines = out.for_people
        self._log = log
        self._live = not out.quiet and sys.stderr.isatty()
        self._total = total
        self._done = 0

    def __call__(self, event: CheckResult | tuple[Check, int, int]) -> None:
        if isinstance(event, CheckResult):
            self._done += 1
            self._clear()
            if self._log is not None:
                click.echo(self._log.result(event))
            elif self._lines:
                click.echo(reports.line(event))
        elif self._live:
            check, done, of = event
            share = f" {done}/{of}" if of else ""
            click.echo(f"\r\x1b[K[{self._done + 1}/{self._total}] {check.name}{share}", nl=False, err=True)

    def _clear(self) -> None:
        if self._live:
            click.echo("\r\x1b[K", nl=False, err=True)


@contextlib.contextmanager
def stop_once() -> Iterator[None]:
    """Treat SIGTERM and a closed terminal as Ctrl-C: hubs are stopped and folders removed.

    After the first signal all further ones are ignored until the end: a second Ctrl-C would interrupt the
    clean-up, or lose the report.
    """
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handled = [number for number, handler in before.items() if handler is not signal.SIG_IGN]  # as by nohup

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        for number in handled:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is stop:
                signal.signal(number, before[number])


def _answer(report: RunReport) -> Answer:
    lines = [*reports.table(report.figures), *clients_table(report.clients)]
    for profile in report.profiles:
        lines += profile_table(profile)
    if report.inconclusive and not report.interrupted:
        lines.append("no verdict: more checks were skipped than passed; the lines above say why")
    lines.append(reports.summary(report))
    code = Exit.INTERRUPTED if report.interrupted else Exit.OK if report.ok else Exit.SELFTEST
    return Answer(reports.as_object(report), lines, code)


def _write_reports(report: RunReport, junit: Path | None, target: Path | None) -> None:
    if junit is not None:
        junit.write_bytes(reports.as_junit(report))
    if target is not None:
        text = json.dumps(reports.as_object(report), ensure_ascii=False, indent=1)
        target.write_text(text + "\n", encoding="utf-8")


_REPORT: Final = click.Path(path_type=Path, dir_okay=False)
_FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
OPTIONS: Final = (
    click.option(
        "--hub",
        envvar="VEEN_HUB",
        show_envvar=True,
        help="URL of a running hub (default: the context's); without one, hubs are started.",
    ),
    click.option(
        "--probes",
        envvar="VEEN_PROBES",
        show_envvar=True,
        help="URL of the hub's /readyz and /metrics [default: http, the hub's host, its port + 1].",
    ),
    click.option("--own", is_flag=True, help="Start hubs, even if VEEN_HUB or the context names one."),
    click.option(
        "--admin-key",
        type=click.Path(path_type=Path, exists=True),
        help="Key of the hub's admin: a folder of `veen keygen`, or a file with the key.",
    ),
    passphrase_option,
    click.option("--ca", type=_FILE, help="PEM file of the authority that signed the hub's certificate."),
    click.option("--cert", type=_FILE, help="PEM file of a client certificate, if the hub demands one."),
    click.option("--cert-key", type=_FILE, help="PEM file of that certificate's key."),
    click.option("--hub-command", help="Program to start as a hub [default: veen-hub]."),
    click.option(
        "--only", multiple=True, metavar="NAME", help="Run only this check; * matches any characters."
    ),
    click.option(
        "--seed",
        type=Integer(0, MAX_SEED),
        default=1,
        show_default=True,
        help="Seed of keys, sizes and malformed requests: the same seed gives the same requests.",
    ),
    click.option(
        "--count", type=Integer(1), default=2_000, show_default=True, help="Suite fuzz: requests per check."
    ),
    click.option(
        "--seconds",
        type=Seconds(),
        default=60.0,
        show_default=True,
        help="Suite fuzz: most seconds per check.",
    ),
    click.option(
        "--rounds",
        type=Integer(1),
        default=10,
        show_default=True,
        help="Suites crash and trust: kills per check.",
    ),
    click.option(
        "--max-wait",
        type=Seconds(),
        default=5.0,
        show_default=True,
        help="Longest time a check may wait for an expiry, an epoch or the hub log, in seconds.",
    ),
    click.option("--quick", is_flag=True, help="Suite perf: write fewer messages, and take about a minute."),
    click.option(
        "--history",
        type=Integer(MIN_HISTORY),
        help="Suite perf: number of entries in the long label of hub.growth.",
    ),
    click.option(
        "--profile",
        is_flag=True,
        help="Suite perf: print the time per message by stage, not the figures; draw a flame graph.",
    ),
    click.option(
        "--flame-graph",
        type=_REPORT,
        callback=writable,
        help="Suite perf with --profile: SVG file of the flame graph [default: veen-flame-graph.svg].",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        envvar="VEEN_LOG_FORMAT",
        show_envvar=True,
        help="json: print each result as a log line with the fields of other VEEN containers.",
    ),
    click.option("--list", "listing", is_flag=True, help="List the checks and exit."),
    click.option("--junit", type=_REPORT, callback=writable, help="Write a JUnit report to this file."),
    click.option(
        "--report", "target", type=_REPORT, callback=writable, help="Write the JSON object to this file."
    ),
)


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@command(*EXAMPLES, name="selftest", cls=SelftestCommand)
@click.argument("suite", nargs=-1, metavar="[SUITE…]", type=click.Choice([*suites.SUITES, "all"]))
@_options
def selftest(
    out: Output,
    *,
    suite: tuple[str, ...],
    hub: str | None,
    probes: str | None,
    own: bool,
    admin_key: Path | None,
    passphrase_file: Path | None,
    ca: Path | None,
    cert: Path | None,
    cert_key: Path | None,
    hub_command: str | None,
    only: tuple[str, ...],
    seed: int,
    count: int,
    seconds: float,
    rounds: int,
    max_wait: float,
    quick: bool,
    history: int | None,
    profile: bool,
    flame_graph: Path | None,
    log_format: str,
    listing: bool,
    junit: Path | None,
    target: Path | None,
) -> Answer:
    """Test a hub from outside, through its public API.

    Without SUITE it runs core. With --hub it writes only to its own streams. Checks that would stop, kill or
    reconfigure that hub are skipped, and the report says so. The check equivocation.report sends invented
    evidence against hubs that do not exist: the operator of the hub sees the report in the hub's log.
    """
    wanted = suites.SUITES if "all" in suite else suite or ("core",)
    if profile and (tuple(suite) != ("perf",) or only):
        raise click.UsageError("--profile measures one thing: write `veen selftest perf --profile`.")
    if flame_graph is not None and not profile:
        raise click.UsageError("--flame-graph belongs to --profile: give both.")
    todo = suites.profile_of("perf") if profile else list(suites.chosen(wanted, only))
    if not todo:
        patterns = " ".join(only)
        raise click.UsageError(
            f"no check of {', '.join(wanted)} matches --only {patterns}: --list shows the checks."
        )
    if listing:
        return _listing(todo)
    hub = choose_hub(hub, out, own=own, hub_command=hub_command)
    options = RunOptions(
        fuzz_requests=count,
        fuzz_seconds=seconds,
        crash_rounds=rounds,
        max_wait=max_wait,
        quick=quick,
        history=history,
    )
    if flame_graph is not None:
        options = dataclasses.replace(options, flame_graph=flame_graph)
    log = ResultLines() if log_format == "json" and not out.as_json else None
    with stop_once():
        fleet = make_fleet(
            hub,
            seed=seed,
            hub_command=hub_command,
            admin_key=admin_key,
            passphrase_file=passphrase_file,
            tls=load_tls(ca, cert, cert_key),
            probes=probes,
        )
        try:
            report = suites.run(todo, fleet, seed, options, ProgressPrinter(out, len(todo), log))
        finally:
            fleet.close()
        answer = _answer(report)
        if log is None:
            out.print_answer(answer)
        else:
            click.echo(log.finished(report))
        _write_reports(report, junit, target)
    raise click.exceptions.Exit(answer.exit_code)


def _listing(todo: list[tuple[str, Check]]) -> Answer:
    rows = [
        {"suite": suite, "name": check.name, "clause": check.clause, "says": check.statement}
        for suite, check in todo
    ]
    lines = [f"{r['suite']:<6}  {r['name']:<32}  {r['clause']:<18}  {r['says']}" for r in rows]
    return Answer({"checks": rows}, lines)
