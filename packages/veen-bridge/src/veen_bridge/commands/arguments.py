"""Arguments that several commands of ``veen bridge`` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from veen_bridge.roles.config import BridgeConfig, load_config
from veen_bridge.roles.session import RoleKeys
from veen_cli.frame import CommandFailed, Exit, Passphrase
from veen_core.errors import DecodeError
from veen_core.ids import ClientId, FixedBytes, HubId
from veen_core.tlog.policy import POLICY_ACTION, WitnessPolicy, parse_policy
from veen_hub.client import Identity
from veen_hub.client.roles import Unlock

F = TypeVar("F", bound=FixedBytes)

config_option = click.option(
    "--config",
    "-c",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("bridge.yaml"),
    show_default=True,
    help="Configuration of the bridge's role.",
)


def unlock_with(passphrase: Passphrase) -> Unlock:
    """Return a function that opens identity folders; it asks for a passphrase where one is needed."""

    def unlock(folder: Path) -> Identity:
        if (folder / "keystore.enc").exists():
            return Identity.load(folder, passphrase.get(str(folder)))
        return Identity.load(folder)

    return unlock


def _parser(kind: type[F]) -> Callable[..., Any]:
    def parse(_ctx: click.Context, _param: click.Parameter, value: str | None) -> F | None:
        try:
            return kind.from_hex(value.lower()) if value is not None else None
        except DecodeError as exc:
            raise click.BadParameter(str(exc)) from None

    return parse


def trust_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say whose bundles are accepted: hub, bridge, witnesses."""
    for option in (
        click.option(
            "--witnesses",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="Witness policy file: a quorum of its witnesses must have cosigned the hub checkpoint.",
        ),
        click.option(
            "--bridge",
            callback=_parser(ClientId),
            help="bridge_id that must have signed the bundles, in hex.",
        ),
        click.option(
            "--hub",
            "--trust",
            "pinned",
            callback=_parser(HubId),
            help="hub_id of the hub that must have signed the entries, in hex.",
        ),
    ):
        work = option(work)
    return work


def read_policy(path: Path | None) -> WitnessPolicy | None:
    """Read a witness policy file."""
    if path is None:
        return None
    try:
        return parse_policy(path.read_bytes())
    except DecodeError as exc:
        raise CommandFailed(f"{path}: {exc}", Exit.USAGE, POLICY_ACTION) from None


def load_role(config_file: Path, passphrase_file: Path | None) -> tuple[BridgeConfig, RoleKeys]:
    """Read a role's configuration and its keys."""
    config = load_config(config_file)
    return config, RoleKeys.load(config, unlock_with(Passphrase(passphrase_file)))
