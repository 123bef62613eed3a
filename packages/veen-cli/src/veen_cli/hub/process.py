"""``veen hub start`` and ``stop``: run a hub in the foreground or in the background, and stop it."""

from __future__ import annotations

import http.client
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
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.arguments.object_files import must_be_writable
from veen_cli.arguments.private_files import private_umask
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.hub.data_directory import data_dir_option, existing, keys_dir_option, new_data_dir_option
from veen_storage import Layout, lock_owner
from veen_storage.shards.reshard import moved_error

LISTENING: Final = "veen-hub listening on "
PROBES: Final = ", probes on "
START_SECONDS: Final = 60.0
"""Longest time for a hub to start or to stop."""
COPY_SECONDS: Final = 86_400.0
"""Longest time for a new replica to copy its primary."""
POLL_SECONDS: Final = 0.02
SIGNING_SECONDS: Final = 1.0
"""Longest wait for a hub that listens to open its signing gate; then the command reports why it is closed."""
HUB_ADVICE: Final = (
    "the network sees who writes when, and can block writers; set tls in hub.yaml, or listen on 127.0.0.1 "
    "behind a TLS proxy"
)


def sibling_file(data_dir: Path, suffix: str) -> Path:
    """Return the path DATA_DIR.suffix: files inside the data directory belong to the hub alone."""
    whole = data_dir.absolute()
    return whole.with_name(f"{whole.name}.{suffix}")


class StartedHub(NamedTuple):
    """A hub process that listens."""

    process: subprocess.Popen[bytes]
    url: str
    probes_url: str


def addresses_in(line: str) -> tuple[str, str]:
    """Return the addresses of the API and of the probes from the line a hub prints when it listens."""
    url, _, probes_url = line.removeprefix(LISTENING).strip().partition(PROBES)
    return url, probes_url


def launch(
    arguments: list[str], log: Path, without: Collection[str] = (), *, seconds: float = START_SECONDS
) -> StartedHub:
    """Start a hub in a session of its own, ``without`` these environment variables.

    Return when it listens; raise its error if it ends before.
    """
    with private_umask(), log.open("ab") as target:
        start = target.tell()
        process = subprocess.Popen(  # noqa: S603 - our own program
            # -P: otherwise the hub would import a queue.py of the current folder.
            [sys.executable, "-P", "-m", "veen_cli.hub.detached", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=target,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in without},
        )
    lines: list[str] = []
    try:
        # Polls are counted, because a clock would also count the time that the machine is suspended.
        for _ in range(round(seconds / POLL_SECONDS)):
            ended = process.poll() is not None  # check before reading the log: no line comes after the end
            lines = log_lines_since(log, start)
            for line in lines:
                if line.startswith(LISTENING) and line.endswith("\n"):
                    url, probes_url = addresses_in(line)
                    return StartedHub(process, url, probes_url)
            if ended:
                raise failure_of(process, lines)
            time.sleep(POLL_SECONDS)
    except BaseException:
        process.kill()
        raise
    process.kill()
    last = lines[-1].strip() if lines else "(none)"
    raise CommandFailed(
        f"the hub did not listen within {seconds:.0f} s; the last line of its log: {last}",
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
            Exit(code) if not last and code in set(Exit) and code != Exit.OK else Exit.BUG,
            "check whether the disk is full, or start it without --detach",
        )


def log_lines_since(log: Path, start: int = 0) -> list[str]:
    with log.open("rb") as file:
        file.seek(start)
        return file.read().decode("utf-8", "replace").splitlines(keepends=True)


def terminate(data_dir: Path, pid: int, timeout: float = START_SECONDS) -> None:
    """Send SIGTERM and wait until the process releases the directory's lock: then the hub has drained."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while lock_owner(data_dir) == pid:
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"process {pid} still has the data directory {data_dir} open after {timeout:.0f} s",
                Exit.USAGE,
                "read its log",
            )
        time.sleep(POLL_SECONDS)


@command(
    "veen hub start --data-dir hub",
    "veen hub start --data-dir hub --port 8080 --detach",
    "veen hub start --data-dir hub --config hub.yaml",
    "veen hub start --data-dir replica --replica-of http://127.0.0.1:8080 --port 8090",
)
@new_data_dir_option
@keys_dir_option
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True),
    help="Configuration file (hub.yaml); flags have precedence.",
)
@click.option(
    "--replica-of",
    metavar="URL",
    help="Follow the hub at this address as its replica: serve reads, sign nothing.",
)
@click.option("--host", help="Address to listen on [default: 127.0.0.1].")
@click.option(
    "--port", type=Integer(0, 65_535), help="Port to listen on; 0 chooses a free one [default: 8080]."
)
@click.option(
    "--probes-port",
    type=Integer(0, 65_535),
    help="Port of /readyz and /metrics; 0 chooses a free one [default: the port + 1].",
)
@click.option("--open", "open_", is_flag=True, help="Let anybody write, without a token (no gating).")
@click.option(
    "--level",
    type=click.Choice(["core", "federated", "hardened", "meta", "access"]),
    help="Rules of its realm that the hub enforces; above core, hub.yaml must name the realm.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Least severe log events to write.",
)
@click.option("--detach", is_flag=True, help="Run in the background; end when the hub listens.")
@click.option(
    "--pid-file",
    type=click.Path(path_type=Path),
    help="With --detach: file for the process id [default: DATA_DIR.pid].",
)
@click.option(
    "--log-file", type=click.Path(path_type=Path), help="With --detach: log file [default: DATA_DIR.log]."
)
def start(
    out: Output,
    *,
    data_dir: Path,
    keys_dir: Path | None,
    config: Path | None,
    replica_of: str | None,
    host: str | None,
    port: int | None,
    probes_port: int | None,
    open_: bool,
    level: str | None,
    log_level: str | None,
    detach: bool,
    pid_file: Path | None,
    log_file: Path | None,
) -> Answer | None:
    """Run a hub, in the foreground or with --detach.

    In the foreground, Ctrl-C or SIGTERM drains and stops it. With --detach, `veen hub stop` does. With
    --replica-of, the data directory may be new: the replica first copies the whole hub.
    """
    if replica_of is None:
        data_dir = existing(data_dir)
    flags = {
        "--data-dir": data_dir,
        "--keys-dir": keys_dir,
        "--config": config,
        "--replica-of": replica_of,
        "--host": host,
        "--port": port,
        "--probes-port": probes_port,
        "--level": level,
        "--log-level": log_level,
    }
    arguments = [f"{name}={value}" for name, value in flags.items() if value is not None]
    arguments += ["--open"] if open_ else []
    if replica_of is None and not Layout(data_dir).version.exists():
        if (moved := moved_error(data_dir)) is not None:
            raise moved
        raise CommandFailed(
            f"{data_dir} is not a data directory",
            Exit.USAGE,
            f"check the name, or create it with `veen hub init -d {quote(str(data_dir))}`",
        )
    if data_dir.exists() and (pid := lock_owner(data_dir)) is not None:
        raise CommandFailed(
            f"{f'process {pid}' if pid else 'another process'} has the data directory {data_dir} open",
            Exit.USAGE,
            f"stop it with `veen hub stop -d {quote(str(data_dir))}`",
        )
    if detach:
        return _detached(out, data_dir, arguments, pid_file, log_file, replica=replica_of is not None)
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
    """Stdout of a hub in the foreground: turns the line it prints into an ``Answer``."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._stdout = sys.stdout

    def write(self, text: str) -> int:
        line = text.strip()
        if line.startswith(LISTENING):
            url, probes_url = addresses_in(line)
            with redirect_stdout(self._stdout):
                warnings = warn(self._out, url)
                data = {"url": url, "probes_url": probes_url, "pid": os.getpid(), "warnings": warnings}
                self._out.print_answer(Answer(data, [f"hub listening on {url}; stop it with Ctrl-C"]))
                self._stdout.flush()
        return len(text)


def warn(out: Output, url: str, advice: str = HUB_ADVICE) -> list[str]:
    """Warn about a server that other machines reach without TLS; with ``--json`` only in the object."""
    where = urlsplit(url)
    try:
        here = ip_address(where.hostname or "").is_loopback
    except ValueError:
        here = where.hostname == "localhost"
    if here or where.scheme == "https":
        return []
    warning = f"{url} is plain HTTP and reachable from other machines: {advice}"
    if not out.as_json:
        click.echo(f"warning: {warning}", err=True)
    return [warning]


def _detached(
    out: Output,
    data_dir: Path,
    arguments: list[str],
    pid_file: Path | None,
    log_file: Path | None,
    *,
    replica: bool,
) -> Answer:
    pid_file, log_file = pid_file or sibling_file(data_dir, "pid"), log_file or sibling_file(data_dir, "log")
    must_be_writable(pid_file)  # before the start: a later failure would leave a hub running unnoticed
    try:
        with out.progress("waiting for the hub to listen"):
            seconds = COPY_SECONDS if replica else START_SECONDS
            process, url, probes_url = launch(arguments, log_file, seconds=seconds)
    except CommandFailed as failed:
        log = f"(its log: {log_file})"
        message = failed.message if failed.action else f"{failed.message} {log}"
        action = f"{failed.action} {log}" if failed.action else None
        raise CommandFailed(message, failed.code, action, reason=failed.reason) from None
    try:
        pid_file.write_text(f"{process.pid}\n", encoding="ascii")
    except BaseException:  # such as a full disk: a failed command must not leave a hub running
        process.terminate()
        process.wait()
        raise
    process.returncode = 0  # suppresses Python's warning: the hub outlives this process on purpose
    why = None if replica else why_not_signing(probes_url)
    return Answer(
        {
            "url": url,
            "probes_url": probes_url,
            "pid": process.pid,
            "pid_file": str(pid_file),
            "log_file": str(log_file),
            "not_signing": why,
            "warnings": warn(out, url),
        },
        [
            f"hub listening on {url} (process {process.pid}, log {log_file})",
            *(["it signs nothing yet: veen hub health says why"] if why is not None else []),
            f"stop it with: veen hub stop --data-dir {quote(str(data_dir))}",
        ],
    )


def why_not_signing(probes_url: str) -> str | None:
    """Return why a hub that has just started signs nothing; None if it signs, or if /readyz does not say.

    Memories that answer do so within milliseconds of the start, so the hub gets ``SIGNING_SECONDS``.
    """
    why = None
    for _ in range(round(SIGNING_SECONDS / POLL_SECONDS)):
        why = _signing_problem(probes_url)
        if why is None:
            break
        time.sleep(POLL_SECONDS)
    return why


def _signing_problem(probes_url: str) -> str | None:
    link = http.client.HTTPConnection(urlsplit(probes_url).netloc, timeout=SIGNING_SECONDS)
    try:
        link.request("GET", "/readyz")
        why = json.loads(link.getresponse().read()).get("why")
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        return None
    finally:
        link.close()
    before = "signing: "
    return why.removeprefix(before) if isinstance(why, str) and why.startswith(before) else None


@command("veen hub stop --data-dir hub")
@data_dir_option
@click.option(
    "--pid-file",
    type=click.Path(path_type=Path),
    help="The file for the process id, to remove [default: DATA_DIR.pid].",
)
def stop(out: Output, *, data_dir: Path, pid_file: Path | None) -> Answer:
    """Stop the hub that has a data directory open.

    The process that holds the directory's lock gets SIGTERM, and the command waits until it has drained. The
    pid file is not read.
    """
    pid = lock_owner(data_dir)
    if pid is None:
        raise CommandFailed(
            f"no hub runs on the data directory {data_dir}", Exit.USAGE, "there is nothing to stop"
        )
    if not pid:
        raise CommandFailed(
            f"an unknown process has the data directory {data_dir} open",
            Exit.USAGE,
            f"find it with `fuser {quote(str(data_dir))}`, and end it with `kill`",
        )
    with out.progress("waiting for the hub to end"):
        terminate(data_dir, pid)
    (pid_file or sibling_file(data_dir, "pid")).unlink(missing_ok=True)
    return Answer({"pid": pid, "stopped": True}, [f"stopped the hub in {data_dir} (process {pid})"])
