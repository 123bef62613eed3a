"""``veen hub start`` and ``stop``: a hub in this process, or in one of its own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import redirect_stdout
from ipaddress import ip_address
from pathlib import Path
from shlex import quote
from typing import Final
from urllib.parse import urlsplit

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.arguments.object_files import must_be_writable
from veen_cli.arguments.private_files import private_umask
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.hub.data_directory import data_dir_option, keys_dir_option
from veen_storage import Layout, lock_owner

LISTENING: Final = "veen-hub listening on "
START_SECONDS: Final = 60.0
"""Longest time for a hub to start or to stop."""
POLL_SECONDS: Final = 0.02


def beside(data_dir: Path, suffix: str) -> Path:
    """Files of the process lie beside the data directory: in it, everything is the hub's."""
    whole = data_dir.absolute()
    return whole.with_name(f"{whole.name}.{suffix}")


def launch(
    arguments: list[str], log: Path, without: Collection[str] = ()
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a hub in a session of its own, ``without`` these variables.

    Returns when it listens, or raises what it said last.
    """
    with private_umask(), log.open("ab") as target:
        start = target.tell()
        process = subprocess.Popen(  # noqa: S603 - our own program
            # -P: else a queue.py of the folder one happens to be in would be run as the hub's.
            [sys.executable, "-P", "-m", "veen_cli.hub.detached", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=target,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in without},
        )
    said: list[str] = []
    try:
        for _ in range(
            round(START_SECONDS / POLL_SECONDS)
        ):  # counted: whoever was suspended meanwhile still looks
            ended = process.poll() is not None  # before its words are read: then none can be missing
            said = log_lines_since(log, start)
            for line in said:
                if line.startswith(LISTENING) and line.endswith("\n"):
                    return process, line.removeprefix(LISTENING).rstrip()
            if ended:
                raise failure_of(process, said)
            time.sleep(POLL_SECONDS)
    except BaseException:
        process.kill()
        raise
    process.kill()
    last = said[-1].strip() if said else "nothing"
    raise CommandFailed(
        f"the hub did not listen within {START_SECONDS:.0f} s; the last line of its log: {last}",
        Exit.USAGE,
        "try again when the machine is less busy",
    )


def failure_of(process: subprocess.Popen[bytes], log_lines: list[str]) -> CommandFailed:
    """Return the error of a hub that has ended: the one its last log line holds, or the signal."""
    code = process.returncode
    if code < 0:
        return CommandFailed(
            f"the hub was ended by {signal.Signals(-code).name}",
            Exit.USAGE,
            "check whether the system ran out of memory, or who stopped it",
        )
    last = log_lines[-1].strip() if log_lines else ""
    try:
        error = json.loads(last)["error"]
        return CommandFailed(
            error["message"], Exit(error["exit_code"]), error["action"], reason=error["code"]
        )
    except (ValueError, KeyError, TypeError):
        return CommandFailed(
            f"the hub ended with code {code} and {f'wrote {last}' if last else 'an empty log'}",
            Exit.BUG,
            "check whether the disk is full, or start it without --detach",
        )


def log_lines_since(log: Path, start: int = 0) -> list[str]:
    with log.open("rb") as file:
        file.seek(start)
        return file.read().decode("utf-8", "replace").splitlines(keepends=True)


def end(data_dir: Path, pid: int, patience: float = START_SECONDS) -> None:
    """SIGTERM, then wait until the directory is let go: the hub has drained by then."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while lock_owner(data_dir) == pid:
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"process {pid} still has {data_dir} open after {patience:.0f} s: look at its log", Exit.USAGE
            )
        time.sleep(POLL_SECONDS)


@command(
    "veen hub start --data-dir hub",
    "veen hub start --data-dir hub --port 8080 --detach",
    "veen hub start --data-dir hub --config hub.yaml",
)
@data_dir_option
@keys_dir_option
@click.option("--config", type=click.Path(path_type=Path, exists=True), help="hub.yaml; flags win over it.")
@click.option("--host", help="Address to listen on [default: 127.0.0.1].")
@click.option("--port", type=Integer(0, 65_535), help="Port; 0 takes a free one [default: 8080].")
@click.option("--open", "open_", is_flag=True, help="No gating: anybody may write, without a token.")
@click.option(
    "--level",
    type=click.Choice(["core", "federated", "hardened", "meta"]),
    help="What of its realm's admin streams it enforces; above core, hub.yaml names the realm.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="How much it logs."
)
@click.option("--detach", is_flag=True, help="Run in the background; returns when it listens.")
@click.option(
    "--pid-file", type=click.Path(path_type=Path), help="With --detach [default: DATA_DIR.pid, beside it]."
)
@click.option(
    "--log-file", type=click.Path(path_type=Path), help="With --detach [default: DATA_DIR.log, beside it]."
)
def start(
    out: Output,
    *,
    data_dir: Path,
    keys_dir: Path | None,
    config: Path | None,
    host: str | None,
    port: int | None,
    open_: bool,
    level: str | None,
    log_level: str | None,
    detach: bool,
    pid_file: Path | None,
    log_file: Path | None,
) -> Answer | None:
    """Run a hub, in the foreground or with --detach.

    In the foreground it ends, drained, on Ctrl-C or SIGTERM. Detached, `veen hub stop` ends it.
    """
    flags = {
        "--data-dir": data_dir,
        "--keys-dir": keys_dir,
        "--config": config,
        "--host": host,
        "--port": port,
        "--level": level,
        "--log-level": log_level,
    }
    arguments = [f"{name}={value}" for name, value in flags.items() if value is not None]
    arguments += ["--open"] if open_ else []
    if not Layout(data_dir).version.exists():
        raise CommandFailed(
            f"{data_dir} is no data directory: make it with `veen hub init -d {quote(str(data_dir))}`",
            Exit.USAGE,
        )
    if (pid := lock_owner(data_dir)) is not None:
        raise CommandFailed(
            f"process {pid} has {data_dir} open: stop it with `veen hub stop -d {quote(str(data_dir))}`",
            Exit.USAGE,
        )
    if detach:
        return _detached(out, data_dir, arguments, pid_file, log_file)
    _in_foreground(out, arguments)
    return None


def _in_foreground(out: Output, arguments: list[str]) -> None:
    # Imported here: `veen hub stop` and the rest do not need a server.
    from veen_hub import main as server  # noqa: PLC0415

    if not out.for_people and not any(each.startswith("--log-level") for each in arguments):
        arguments = [*arguments, "--log-level=error"]
    with redirect_stdout(_Announcement(out)):
        server.run(arguments)


class _Announcement(io.TextIOBase):
    """The one line that a hub prints, as ``--json`` and ``--quiet`` want it."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._stdout = sys.stdout

    def write(self, text: str) -> int:
        line = text.strip()
        if line.startswith(LISTENING):
            url = line.removeprefix(LISTENING)
            with redirect_stdout(self._stdout):
                warnings = warn(self._out, url)
                told = {"url": url, "pid": os.getpid(), "warnings": warnings}
                self._out.print_answer(Answer(told, [f"hub listening on {url}, until Ctrl-C"]))
                self._stdout.flush()
        return len(text)


def warn(out: Output, url: str) -> list[str]:
    """Of a hub that others on the network reach without TLS; also with ``--quiet``, not with ``--json``."""
    where = urlsplit(url)
    try:
        here = ip_address(where.hostname or "").is_loopback
    except ValueError:
        here = where.hostname == "localhost"
    if here or where.scheme == "https":
        return []
    warning = (
        f"{url} is plain HTTP and reachable beyond this machine: whoever is on the way sees who writes "
        "when and can cut them off; set tls in hub.yaml, or listen on 127.0.0.1 behind a proxy that has it"
    )
    if not out.as_json:
        click.echo(f"warning: {warning}", err=True)
    return [warning]


def _detached(
    out: Output, data_dir: Path, arguments: list[str], pid_file: Path | None, log_file: Path | None
) -> Answer:
    pid_file, log_file = pid_file or beside(data_dir, "pid"), log_file or beside(data_dir, "log")
    must_be_writable(pid_file)  # else a hub would run of which nobody was told
    try:
        with out.progress("waiting for the hub to listen"):
            process, url = launch(arguments, log_file)
    except CommandFailed as failed:
        raise CommandFailed(
            f"{failed.message} (its log: {log_file})", failed.code, failed.action, reason=failed.reason
        ) from None
    try:
        pid_file.write_text(f"{process.pid}\n", encoding="ascii")
    except BaseException:  # of a full disk, say: who is told that it failed expects no hub
        process.terminate()
        process.wait()
        raise
    process.returncode = 0  # it outlives us on purpose; Python need not warn
    return Answer(
        {
            "url": url,
            "pid": process.pid,
            "pid_file": str(pid_file),
            "log_file": str(log_file),
            "warnings": warn(out, url),
        },
        [
            f"hub listening on {url} (process {process.pid}, log {log_file})",
            f"stop it with: veen hub stop --data-dir {quote(str(data_dir))}",
        ],
    )


@command("veen hub stop --data-dir hub")
@data_dir_option
@click.option("--pid-file", type=click.Path(path_type=Path), help="To remove [default: DATA_DIR.pid].")
def stop(out: Output, *, data_dir: Path, pid_file: Path | None) -> Answer:
    """Stop the hub that has a data directory open.

    Whoever holds the directory's lock is asked to end (SIGTERM) and waited for; a stale pid file harms
    nobody.
    """
    pid = lock_owner(data_dir)
    if not pid:
        raise CommandFailed(f"no hub has {data_dir} open: there is nothing to stop", Exit.USAGE)
    with out.progress("waiting for the hub to end"):
        end(data_dir, pid)
    (pid_file or beside(data_dir, "pid")).unlink(missing_ok=True)
    return Answer({"pid": pid, "stopped": True}, [f"stopped the hub in {data_dir} (process {pid})"])
