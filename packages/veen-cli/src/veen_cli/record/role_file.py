"""recorder.yaml: the shared profile, and the settings of one role (SDR0 3.2.2, 3.2.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from veen_cli.arguments.numbers import Seconds
from veen_cli.arguments.passphrase import Passphrase, passphrase_option
from veen_cli.identity.identity_folder import Folder
from veen_core.errors import ConfigError, DecodeError
from veen_core.keystore import Secrets
from veen_hub.client.roles import ACCESS_KEYS, RoleAccess, Settings, parse_access, read_settings
from veen_overlays.recorder.role_settings import RecorderRole, parse_role


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFile:
    """A checked recorder.yaml of one role, and what its commands need to connect."""

    path: Path
    role: RecorderRole
    access: RoleAccess
    passphrase: Passphrase
    wait: float
    """Seconds to keep trying to reach the hub."""

    def unlock(self, folder: Path) -> Secrets:
        """Open an identity's folder; ask for its passphrase if it has one."""
        return Folder(folder).unlock(self.passphrase)


def parse_file(settings: Mapping[str, Any], base: Path) -> tuple[RecorderRole, RoleAccess]:
    """Check the settings of a role's recorder.yaml; relative paths are below ``base``."""
    role = parse_role({key: value for key, value in settings.items() if key not in ACCESS_KEYS})
    return role, parse_access(Settings(settings, base))


def load_profile(path: Path) -> tuple[dict[str, Any], RecorderRole]:
    """Read a recorder.yaml that has the shared profile; settings of a role are left out."""
    settings = read_settings(path)
    try:
        found = parse_role({key: value for key, value in settings.items() if key not in ACCESS_KEYS})
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc.message}", action=exc.action) from None
    return settings, found


def role_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config``, ``--wait`` and ``--passphrase-file``; the command gets a ``file``."""

    @wraps(work)
    def run(*args: Any, config_file: Path, wait: float, passphrase_file: Path | None, **options: Any) -> Any:
        if not config_file.exists():
            raise ConfigError(
                f"{config_file}: no such file",
                action="name the role's file with --config, or make a role with `veen record init`",
            )
        settings = read_settings(config_file)
        try:
            role, access = parse_file(settings, config_file.parent.absolute())
        except ConfigError as exc:
            raise ConfigError(f"{config_file}: {exc.message}", action=exc.action) from None
        except DecodeError as exc:
            raise ConfigError(f"{config_file}: {exc}") from None
        file = RoleFile(
            path=config_file, role=role, access=access, passphrase=Passphrase(passphrase_file), wait=wait
        )
        return work(*args, file=file, **options)

    found: Callable[..., Any] = run
    for option in (
        passphrase_option,
        click.option(
            "--wait",
            type=Seconds(),
            default=2.0,
            show_default=True,
            help="Seconds to keep trying to reach the hub.",
        ),
        click.option(
            "--config",
            "-c",
            "config_file",
            type=click.Path(path_type=Path, dir_okay=False),
            default=Path("recorder.yaml"),
            show_default=True,
            help="recorder.yaml of the role that `veen record init` made.",
        ),
    ):
        found = option(found)
    return found
