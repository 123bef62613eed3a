"""Options that several commands of ``veen bridge`` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from veen_bridge.roles.config import BridgeConfig, load_config
from veen_bridge.roles.session import RoleKeys, Unlock
from veen_cli.frame import Folder, Passphrase


def config_option(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config``: the file that `veen bridge init` wrote."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        default="bridge.yaml",
        show_default=True,
        envvar="VEEN_BRIDGE_CONFIG",
        show_envvar=True,
        help="Configuration of the role, as `veen bridge init` writes it.",
    )(work)


def unlocks(passphrase_file: Path | None) -> Unlock:
    """The function that opens identity folders, asking for passphrases as `veen` does."""
    source = Passphrase(passphrase_file)
    return lambda folder: Folder(folder).unlock(source)


def load_role(config_file: Path, passphrase_file: Path | None) -> tuple[BridgeConfig, RoleKeys]:
    """Read a role's configuration and its keys."""
    config = load_config(config_file)
    return config, RoleKeys.load(config, unlocks(passphrase_file))
