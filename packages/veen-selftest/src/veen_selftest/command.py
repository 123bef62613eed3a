"""``veen selftest`` and ``veen-selftest``: is this hub to be trusted.

Exit codes: 0 everything that was judged holds, 5 something does not (or nothing was judged), 1 wrong usage,
2 there is no hub, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click

from veen_core.errors import VeenError
from veen_core.hashing import H
from veen_core.keys import SigningKey, SigningSeed
from veen_core.keystore import Secrets
from veen_hub.client import Tls
from veen_selftest import report as reports
from veen_selftest import suite as suites
from veen_selftest.bench import Effort
from veen_selftest.check import Check, Violation
from veen_selftest.fleet import Fleet, HubAt, OwnFleet
from veen_selftest.own_hub import PROGRAM
from veen_selftest.suite import Report, Result

USAGE, NETWORK, FAILED, INTERRUPTED = 1, 2, 5, 130
EXAMPLES: Final = (
    "veen selftest core",
    "veen selftest core fuzz --hub http://127.0.0.1:8080 --admin-key admin/secrets.cbor",
    "veen selftest all --junit selftest.xml --seed 7",
    "veen selftest perf --quick --json",
)


class SelftestError(click.ClickException):
    """One line for a person, one code for a script."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it off the instance


class SelftestCommand(click.Command):
    """A command that shows how it is used."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Suites"):
            formatter.write_dl([*suites.SUITES.items(), ("all", "every one of them")])
        with formatter.section("Examples"):
            for example in EXAMPLES:
                shown = example.replace("veen selftest", ctx.command_path, 1)
                formatter.write(f"{'':{formatter.current_indent}}{shown}\n")


def read_key(path: Path) -> SigningKey:
    """A secrets.cbor, as ``veen keygen --no-passphrase`` writes it, or a key's 32 bytes, raw or in hex."""
    content = path.read_bytes()
    with contextlib.suppress(VeenError):
        return Secrets.decode(content).signing_key
    with contextlib.suppress(VeenError, ValueError):
        seed = content if len(content) == SigningSeed.SIZE else bytes.fromhex(content.decode("ascii"))
        return SigningKey(SigningSeed(seed))
    raise click.BadParameter(
        f"{path} holds no key: want secrets.cbor (veen keygen --no-passphrase), or 32 bytes, raw or in hex"
    )


class Teller:
    """Says each outcome as it comes; on a terminal, also what is going on."""

    def __init__(self, *, lines: bool, total: int) -> None:
        self._lines = lines
        self._watched = lines and sys.stderr.isatty()
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


def make_fleet(
    hub: str | None, admin_key: Path | None, ca: Path | None, hub_command: str | None, seed: int
) -> Fleet:
    if hub is None:
        if admin_key is not None or ca is not None:
            raise click.UsageError("--admin-key and --ca are of a hub that is there: give --hub too.")
        program: Sequence[str] = shlex.split(hub_command) if hub_command else PROGRAM
        return OwnFleet(H(b"veen-selftest" + seed.to_bytes(8, "big")), program)
    if hub_command is not None:
        raise click.UsageError("--hub-command starts a hub, --hub is one that runs: give one of them.")
    if not hub.startswith(("http://", "https://")):
        raise click.UsageError(f"--hub {hub}: want a URL, like http://127.0.0.1:8080.")
    admin = read_key(admin_key) if admin_key is not None else None
    fleet = HubAt(hub, os.urandom(6).hex(), admin, Tls(ca=ca) if ca is not None else None)
    try:
        fleet.reach()
    except (OSError, EOFError, http.client.HTTPException) as exc:
        raise SelftestError(
            f"no hub answers at {hub} ({exc}): check that it runs, and its address", NETWORK
        ) from None
    except (VeenError, Violation) as exc:
        raise SelftestError(f"what answers at {hub} is not a hub of this protocol: {exc}", FAILED) from None
    return fleet


@contextlib.contextmanager
def asked_to_stop() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: hubs are stopped, folders removed."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def conclude(
    report: Report, *, as_json: bool, quiet: bool, junit: Path | None, target: Path | None
) -> NoReturn:
    """Write what was asked for, say the rest, end with the code."""
    found = reports.as_object(report)
    if junit is not None:
        junit.write_bytes(reports.as_junit(report))
    if target is not None:
        target.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    elif not quiet:
        for text in reports.table(report.figures):
            click.echo(text)
        if report.too_little and not report.interrupted:
            click.echo("not a verdict: more was skipped than judged; the reasons stand above (--admin-key?)")
        click.echo(reports.summary(report))
    code = INTERRUPTED if report.interrupted else 0 if report.ok else FAILED
    raise click.exceptions.Exit(code)


_PATH: Final = click.Path(path_type=Path)
_FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
OPTIONS: Final = (
    click.option("--hub", envvar="VEEN_HUB", help="A running hub's URL; without it, hubs are started."),
    click.option("--admin-key", type=_FILE, help="The key whose tokens and orders the hub takes."),
    click.option("--ca", type=_FILE, help="PEM of the authority behind the hub's certificate."),
    click.option("--hub-command", help="The program to start as a hub [default: veen-hub]."),
    click.option("--only", multiple=True, metavar="NAME", help="Only this check; * fits anything."),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**63 - 1),
        default=1,
        show_default=True,
        help="Same seed, same requests.",
    ),
    click.option(
        "--count",
        type=click.IntRange(1),
        default=2_000,
        show_default=True,
        help="fuzz: requests a check.",
    ),
    click.option(
        "--seconds",
        type=click.FloatRange(0.1),
        default=60.0,
        show_default=True,
        help="fuzz: at most so long a check.",
    ),
    click.option(
        "--rounds",
        type=click.IntRange(1),
        default=10,
        show_default=True,
        help="crash: how often to kill.",
    ),
    click.option(
        "--patience",
        type=click.FloatRange(0),
        default=5.0,
        show_default=True,
        help="Seconds to wait for time to pass.",
    ),
    click.option("--quick", is_flag=True, help="perf: under a minute, with smaller histories."),
    click.option(
        "--history", type=click.IntRange(2_000), help="perf: entries in the long label of hub.growth."
    ),
    click.option("--list", "listing", is_flag=True, help="List the checks and end."),
    click.option("--junit", type=_PATH, help="Write a JUnit report here."),
    click.option("--report", "target", type=_PATH, help="Write the JSON object here too."),
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
    admin_key: Path | None,
    ca: Path | None,
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
    kill or reconfigure a hub are skipped there, and say so.
    """
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
        fleet = make_fleet(hub, admin_key, ca, hub_command, seed)
        try:
            teller = Teller(lines=not (as_json or quiet), total=len(todo))
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


def main(args: Sequence[str] | None = None) -> NoReturn:
    """The console script: what ``veen`` does around a command, for those who have only this one."""
    try:
        code = selftest.main(args, prog_name="veen-selftest", standalone_mode=False)
    except click.UsageError as error:
        code = _complain(f"{error.format_message()} (see 'veen-selftest --help')", USAGE)
    except SelftestError as error:
        code = _complain(error.format_message(), error.exit_code)
    except click.ClickException as error:
        code = _complain(error.format_message(), USAGE)
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    click.echo("veen-selftest: " + " ".join(message.split()), err=True)
    return code


if __name__ == "__main__":
    main()
