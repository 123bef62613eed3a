"""``veen selftest`` and ``veen-selftest``: is this hub to be trusted.

Exit codes: 0 all that was judged holds, 5 something does not (or too little was judged), 1 wrong usage,
2 there is no hub, 4 the hub does not take orders signed with the admin key, 70 a bug, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click

from veen_selftest.command.target import FAILED, make_fleet, tls_of, which_hub
from veen_selftest.runner import report as reports
from veen_selftest.runner import suite as suites
from veen_selftest.runner.check import Check
from veen_selftest.runner.context import Effort
from veen_selftest.runner.suite import Report, Result

INTERRUPTED = 130
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXAMPLES: Final = (
    "veen selftest core",
    "veen selftest core fuzz --hub http://127.0.0.1:8080 --admin-key admin",
    "veen selftest all --junit selftest.xml --seed 7",
    "veen selftest perf --quick --json",
)


class SelftestCommand(click.Command):
    """A command that shows how it is used."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Suites"):
            formatter.write_dl([*suites.SUITES.items(), ("all", "every one of them")])
        with formatter.section("Examples"):
            for example in EXAMPLES:
                shown = example.replace("veen selftest", ctx.command_path, 1)
                formatter.write(f"{'':{formatter.current_indent}}{shown}\n")


class Teller:
    """Says each outcome as it comes; on a terminal, also what is going on."""

    def __init__(self, *, lines: bool, watched: bool, total: int) -> None:
        self._lines = lines
        self._watched = watched and sys.stderr.isatty()
        self._total = total
        self._done = 0

    def __call__(self, news: Result | tuple[Check, int, int]) -> None:
        if isinstance(news, Result):
            self._done += 1
            self._clear()
            if self._lines:
                click.echo(reports.line(news))
        elif self._watched:
            check, done, of = news
            share = f" {done}/{of}" if of else ""
            click.echo(f"\r\x1b[K[{self._done + 1}/{self._total}] {check.name}{share}", nl=False, err=True)

    def _clear(self) -> None:
        if self._watched:
            click.echo("\r\x1b[K", nl=False, err=True)


@contextlib.contextmanager
def asked_to_stop() -> Iterator[None]:
    """SIGTERM, or a terminal that is closed, ends a run as Ctrl-C does: hubs are stopped, folders removed.

    Once asked, it is not disturbed again, up to its very end: a second Ctrl-C would leave behind what the
    first one cleans up, or take the report along.
    """
    before = {number: signal.getsignal(number) for number in STOPPING}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]  # as by nohup

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        for number in heard:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in heard:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in heard:
            if signal.getsignal(number) is stop:
                signal.signal(number, before[number])


def conclude(
    report: Report, *, as_json: bool, quiet: bool, junit: Path | None, target: Path | None
) -> NoReturn:
    """Say it, write what was asked for, end with the code; a full disk does not take the verdict along."""
    found = reports.as_object(report)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    elif not quiet:
        for text in reports.table(report.figures):
            click.echo(text)
        if report.too_little and not report.interrupted:
            click.echo("not a verdict: more was skipped than judged; the reasons stand above")
        click.echo(reports.summary(report))
    if junit is not None:
        _write(junit, reports.as_junit(report))
    if target is not None:
        _write(target, (json.dumps(found, ensure_ascii=False, indent=1) + "\n").encode())
    code = INTERRUPTED if report.interrupted else 0 if report.ok else FAILED
    raise click.exceptions.Exit(code)


def _write(target: Path, content: bytes) -> None:
    try:
        target.write_bytes(content)
    except OSError as exc:
        raise click.FileError(str(target), exc.strerror) from None


class Whole(click.IntRange):
    """A whole number within bounds, called so where it is none."""

    name = "integer"


class Number(click.FloatRange):
    """The same, with a fraction."""

    name = "number"


def _writable(_ctx: click.Context, _param: click.Parameter, target: Path | None) -> Path | None:
    """A report that could not be written is said before the run, not after an hour of it."""
    if target is not None and not (os.access(target if target.exists() else target.parent, os.W_OK)):
        raise click.BadParameter(f"{target} cannot be written: choose a file in a folder that is yours")
    return target


_REPORT: Final = click.Path(path_type=Path, dir_okay=False)
_FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
OPTIONS: Final = (
    click.option(
        "--hub",
        envvar="VEEN_HUB",
        show_envvar=True,
        help="A running hub's URL (else the context's); without one, hubs are started.",
    ),
    click.option("--own", is_flag=True, help="Start hubs, whatever VEEN_HUB or the context says."),
    click.option(
        "--admin-key",
        type=click.Path(path_type=Path, exists=True),
        help="Whose tokens and orders the hub takes: an identity's folder, or a file with the key.",
    ),
    click.option(
        "--passphrase-file",
        type=_FILE,
        envvar="VEEN_PASSPHRASE_FILE",
        show_envvar=True,
        help="If those keys are sealed (else VEEN_PASSPHRASE, else a prompt).",
    ),
    click.option("--ca", type=_FILE, help="PEM of the authority behind the hub's certificate."),
    click.option("--cert", type=_FILE, help="PEM of a certificate to show, if the hub demands one."),
    click.option("--cert-key", type=_FILE, help="PEM of that certificate's key."),
    click.option("--hub-command", help="The program to start as a hub [default: veen-hub]."),
    click.option("--only", multiple=True, metavar="NAME", help="Only this check; * fits anything."),
    click.option(
        "--seed",
        type=Whole(0, 2**63 - 1),
        default=1,
        show_default=True,
        help="Same seed, same requests.",
    ),
    click.option(
        "--count",
        type=Whole(1),
        default=2_000,
        show_default=True,
        help="fuzz: requests a check.",
    ),
    click.option(
        "--seconds",
        type=Number(0.1),
        default=60.0,
        show_default=True,
        help="fuzz: at most so long a check.",
    ),
    click.option(
        "--rounds",
        type=Whole(1),
        default=10,
        show_default=True,
        help="crash: how often to kill.",
    ),
    click.option(
        "--patience",
        type=Number(0),
        default=5.0,
        show_default=True,
        help="Seconds to wait for time to pass.",
    ),
    click.option("--quick", is_flag=True, help="perf: under a minute, with smaller histories."),
    click.option("--history", type=Whole(2_000), help="perf: entries in the long label of hub.growth."),
    click.option("--list", "listing", is_flag=True, help="List the checks and end."),
    click.option("--junit", type=_REPORT, callback=_writable, help="Write a JUnit report here."),
    click.option(
        "--report", "target", type=_REPORT, callback=_writable, help="Write the JSON object here too."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    click.option("--quiet", "-q", is_flag=True, help="Print nothing; the exit code tells."),
)


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command(
    "selftest",
    cls=SelftestCommand,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.argument("suite", nargs=-1, type=click.Choice([*suites.SUITES, "all"]))
@_options
def selftest(
    *,
    suite: tuple[str, ...],
    hub: str | None,
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
    patience: float,
    quick: bool,
    history: int | None,
    listing: bool,
    junit: Path | None,
    target: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Judge a hub from outside, through its public API.

    Without SUITE it runs core. Against --hub it writes only to streams of its own; checks that would stop,
    kill or reconfigure a hub are skipped there, and say so. It also reports invented equivocation to it, of
    hubs that do not exist: the operator sees that in the log.
    """
    hub = which_hub(hub, own=own, hub_command=hub_command, told=not (as_json or quiet or listing))
    wanted = suites.SUITES if "all" in suite else suite or ("core",)
    todo = list(suites.chosen(wanted, only))
    if not todo:
        raise click.UsageError(f"no check of {', '.join(wanted)} is named so: see --list.")
    if listing:
        return _list(todo, as_json=as_json)
    effort = Effort(
        fuzz_requests=count,
        fuzz_seconds=seconds,
        crash_rounds=rounds,
        patience=patience,
        quick=quick,
        history=history,
    )
    with asked_to_stop():
        fleet = make_fleet(
            hub,
            seed=seed,
            hub_command=hub_command,
            admin_key=admin_key,
            passphrase_file=passphrase_file,
            tls=tls_of(ca, cert, cert_key),
        )
        try:
            teller = Teller(lines=not (as_json or quiet), watched=not quiet, total=len(todo))
            report = suites.run(todo, fleet, seed, effort, teller)
        finally:
            fleet.close()
        conclude(report, as_json=as_json, quiet=quiet, junit=junit, target=target)


def _list(todo: list[tuple[str, Check]], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"suite": suite, "name": check.name, "clause": check.clause, "says": check.says}
            for suite, check in todo
        ]
        click.echo(json.dumps({"checks": rows}, ensure_ascii=False))
        return
    for suite, check in todo:
        click.echo(f"{suite:<6}  {check.name:<32}  {check.clause:<18}  {check.says}")
