"""``veen-hub``: run a hub in the foreground until SIGTERM or Ctrl-C (spec-4 §4.2, §5.2).

``--init`` and ``--rotate`` instead change a data directory on which no hub runs, and end.

Exit codes: 0 drained; 1 a setting, a file or an address is wrong; 2 wrong usage; 3 the data directory is
damaged or belongs to another hub; 4 another process has the data directory open; 5 the hub stopped itself,
because a write, a sync or a part of its pipeline failed.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop

from veen_core.errors import ConfigError, VeenError
from veen_core.limits import DEFAULT_LIMITS
from veen_core.profile import PROFILES
from veen_hub.hub import Hub
from veen_hub.ops import config as configuration
from veen_hub.ops import init_rotate
from veen_hub.ops.anchors import load_anchor
from veen_hub.ops.config import HubConfig
from veen_hub.ops.garbage import collect_rarely
from veen_hub.ops.logs import finish, log, set_up, write_failure
from veen_hub.ops.process_memory import protect_memory
from veen_hub.ops.stage_timers import start_if_asked
from veen_hub.ops.stopping import first_of, stop_event
from veen_hub.server import Server
from veen_hub.version import VERSION
from veen_storage import (
    DamageError,
    Layout,
    LockedError,
    MismatchError,
    PoisonedError,
    Store,
)
from veen_storage.shards.sharded_layout import ShardedLayout, is_sharded, read_shard_map

ROLES: Final = ("authority", "tenant")


class HubFailedError(VeenError):
    """The hub stopped itself, because it could no longer make messages durable."""


EXIT_CODES: Mapping[type[Exception], int] = {
    DamageError: 3,
    MismatchError: 3,
    LockedError: 4,
    PoisonedError: 5,
    HubFailedError: 5,
}
"""The exit code of each kind of error; 1 for all others."""


class _ProfileAction(argparse.Action):
    """Set the profile; ``--profile=ROLE``, as spec-4 §4.2 and §5.2 write it, sets the role."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse's interface
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002 - argparse's interface
    ) -> None:
        setattr(namespace, "role" if values in ROLES else self.dest, values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="veen-hub",
        description="Run a VEEN hub on an existing data directory (create one with `veen hub init`).",
        epilog="Example: veen-hub --role=tenant --config=/etc/veen/hub.yaml --data-dir=/var/lib/veen",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--init", action="store_true", help="create a data directory and exit")
    instead.add_argument("--rotate", action="store_true", help="rotate the key of a stopped hub and exit")
    parser.add_argument(
        "--init-if-missing",
        action="store_true",
        help="before the start, create a missing data directory from the one key in --keys-dir",
    )
    parser.add_argument(
        "--rotate-if-new",
        action="store_true",
        help="before the start, rotate to the key in --keys-dir that the hub does not have yet",
    )
    parser.add_argument(
        "--admin",
        default=os.environ.get("VEEN_ADMIN") or None,
        help="for a new data directory: public key in hex of the hub's admin [$VEEN_ADMIN]",
    )
    parser.add_argument(
        "--profile",
        action=_ProfileAction,
        choices=[*PROFILES, *ROLES],
        default="default",
        metavar=f"{{{','.join(PROFILES)}}}",
        help="for a new data directory: padding and epochs, fixed for its life [default: default]",
    )
    parser.add_argument(
        "--window",
        type=int,
        default=604_800,
        help="with --rotate and --rotate-if-new: seconds that the old key stays active [default: a week]",
    )
    parser.add_argument("--role", choices=ROLES, help="the hub's role (spec-4)")
    parser.add_argument("--config", type=Path, help="path of hub.yaml")
    parser.add_argument("--data-dir", help="the data directory")
    parser.add_argument("--keys-dir", help="folder of the hub's keys, if not in the data directory")
    parser.add_argument("--host", help="address of the API")
    parser.add_argument("--port", type=int, help="port of the API; 0 takes a free one")
    parser.add_argument("--probes-host", help="address of /readyz and /metrics")
    parser.add_argument(
        "--probes-port",
        type=int,
        help="port of /readyz and /metrics; default: API port + 1, with --port=0 a free one",
    )
    parser.add_argument("--replica-of", help="address of the primary: follow it, and sign nothing")
    parser.add_argument("--open", action="store_true", help="no gating: accept messages without a cap token")
    parser.add_argument(
        "--level",
        choices=["core", "federated", "hardened", "meta", "access"],
        help="rules of its realm that the hub enforces; above core, hub.yaml must name the realm",
    )
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"])
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="write log lines only: the address and the error that ends the hub are log lines too",
    )
    parser.add_argument("--version", action="version", version=f"veen-hub {VERSION}")
    return parser


def parse(arguments: Sequence[str]) -> HubConfig:
    """Parse flags and load the configuration."""
    return configure(_parser().parse_args(arguments))


def configure(given: argparse.Namespace) -> HubConfig:
    """Load the configuration: flags override the environment, which overrides the file."""
    overrides: dict[str, Any] = configuration.from_environment(os.environ)
    flags = {
        "role": given.role,
        "data_dir": given.data_dir,
        "keys_dir": given.keys_dir,
        "replica_of": given.replica_of,
        "listen.host": given.host,
        "listen.port": given.port,
        "probes.host": given.probes_host,
        "probes.port": given.probes_port,
        "log_level": given.log_level,
        "level": given.level,
        "gating": False if given.open else None,
    }
    overrides |= {key: value for key, value in flags.items() if value is not None}
    return configuration.load(given.config, overrides)


def open_hub(config: HubConfig) -> Hub:
    """Open the data directory and make the hub over it."""
    limits = DEFAULT_LIMITS.lowered(config.limits) if config.limits else None
    store = Store(
        config.data_dir, keys_directory=config.keys_dir, limits=limits, keeping=config.replication.keeping
    )
    try:
        return Hub(config, store, anchor=load_anchor(config.anchor))
    except BaseException:
        store.close()
        raise


def allow_many_connections() -> None:
    """Raise the limit of open files as far as the system allows: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def is_plain_beyond_loopback(config: HubConfig) -> bool:
    """Return whether others on the network can read and change the traffic (SH0.3)."""
    return config.tls is None and _is_beyond_loopback(config.listen.host)


def _is_beyond_loopback(host: str) -> bool:
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def check_shards(config: HubConfig) -> int:
    """Return the number of shards; raise unless the data directory was made for it."""
    root, wanted = config.data_dir, config.shard_count
    has = 1
    if Layout(root).version.exists() and is_sharded(root):
        has = read_shard_map(ShardedLayout(root)).count
    if has != wanted:
        raise ConfigError(
            f"shards: the configuration says {wanted}, and {root} was made for {has}",
            action=f"set `shards: {has}`, or stop the hub and run "
            f"`veen hub reshard --data-dir {root} --shards {wanted} --out DIRECTORY`",
        )
    return has


async def serve(config: HubConfig, *, quiet: bool = False) -> bool:
    """Run the hub until a signal or a failure of its pipeline; then drain.

    ``quiet``: the address is in the log only. Return whether the hub must be run again, because its data
    directory has to be opened anew.
    """
    allow_many_connections()
    if config.replica_of is not None:
        # Imported here: only a replica needs the client.
        from veen_hub.replica.preparation import prepare_replica  # noqa: PLC0415

        await prepare_replica(config)
    if check_shards(config) > 1:
        # Imported here: only a hub with several shards needs it.
        from veen_hub.shards.coordinator import serve_shards  # noqa: PLC0415

        if (why := await serve_shards(config, _log_start, quiet=quiet)) is not None:
            raise HubFailedError(why, action="see the log, then start the hub again")
        return False
    server = Server(open_hub(config))
    stopping = stop_event()
    url = await server.start()
    collect_rarely()
    hub = server.hub
    _log_start(config, hub, url, server.probes_url)
    if server.console_url is not None:
        needs_token = config.console is not None and config.console.token_file is not None
        log(logging.INFO, "console_listening", url=server.console_url, needs_token=needs_token)
    if not quiet:
        # The starting program waits for this line. One write, because the log may go to the same file.
        print(f"veen-hub listening on {url}, probes on {server.probes_url}\n", end="", flush=True)  # noqa: T201
    await first_of(stopping, hub.failed, hub.reopening)
    log(logging.INFO, "draining")
    await server.stop()
    log(logging.INFO, "stopped")
    if hub.failure is not None:
        raise HubFailedError(hub.failure, action="see the log, then start the hub again")
    return hub.reopening.is_set() and not stopping.is_set()


def _log_start(config: HubConfig, hub: Hub, url: str, probes_url: str) -> None:
    log(
        logging.INFO,
        "listening",
        url=url,
        probes_url=probes_url,
        hub_id=hub.identity.hub_id.hex(),
        version=VERSION,
    )
    if config.replica_of is None:  # a replica signs nothing, so it cannot sign a second history
        hub.hub_log.memories.log_start()
    if not config.gating:
        log(logging.WARNING, "gating_off", note="anyone who reaches the port may write", url=url)
    for witness in config.hub_log.witnesses:
        address = urlsplit(witness.url)
        if address.scheme == "http" and _is_beyond_loopback(address.hostname or ""):
            note = "an attacker who can change its answers can stop this hub from signing"
            log(logging.WARNING, "plain_http_witness", url=witness.url, note=note, action="use https")
    if is_plain_beyond_loopback(config):
        log(logging.WARNING, "plain_http_beyond_loopback", action="set tls in hub.yaml", url=url)


def prepare(config: HubConfig, given: argparse.Namespace) -> None:
    """Run --init or --rotate, and print the hub_id that clients pin, or the new key."""
    if given.init:
        identity = init_rotate.init(config, given.profile, given.admin)
        print(f"veen-hub made {identity.hub_id.hex()}")  # noqa: T201
    else:
        identity = init_rotate.rotate(config, given.window)
        print(f"veen-hub rotated to {identity.newest.hub_pk.hex()}")  # noqa: T201


def prepare_start(config: HubConfig, given: argparse.Namespace) -> None:
    """Do what a container's start asks for: each step changes nothing if it was done before."""
    if given.init_if_missing and (made := init_rotate.init_if_missing(config, given.profile, given.admin)):
        note = "if this hub has signed before, only its memories can stop it from signing a second history"
        log(logging.WARNING, "data_directory_created", hub_id=made.hub_id.hex(), note=note)
    if given.rotate_if_new and (rotated := init_rotate.rotate_if_new(config, given.window)):
        log(logging.INFO, "key_rotated", hub_pk=rotated.newest.hub_pk.hex())


def run(arguments: Sequence[str]) -> None:
    """Run ``veen-hub``; errors are raised to the caller."""
    _run(_parser().parse_args(arguments))


def _run(given: argparse.Namespace) -> None:
    config = configure(given)
    protect_memory()
    if given.init or given.rotate:
        prepare(config, given)
        return
    start_if_asked("hub")
    always: dict[str, str] = {"role": config.role, "universe_id": config.universe_id}
    if config.tenant_id is not None:
        always["tenant_id"] = config.tenant_id
    set_up(config.log_level, **always)
    try:
        prepare_start(config, given)
        with contextlib.suppress(KeyboardInterrupt):
            while uvloop.run(serve(config, quiet=given.quiet)):
                pass
    finally:
        finish()


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        _run(given)
    except (VeenError, OSError) as exc:
        if given.quiet:
            write_failure(exc, role=given.role or os.environ.get("VEEN_ROLE", "tenant"))
        else:
            print(f"veen-hub: {exc}", file=sys.stderr)  # noqa: T201
        return next((code for kind, code in EXIT_CODES.items() if isinstance(exc, kind)), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
