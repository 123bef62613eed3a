"""The options ``--ledger`` and ``--policy`` of wallet commands (WAL 2.2, 3.1, §8).

A policy is a JSON file: {"currencies": ["EUR"], "operators": ["<key in hex>"]}. An absent field restricts
nothing. An operator is named by the key that signs its messages, or by the key of the organisation
that issued its token (WAL §8). The signing key is the identity's key on a hub with tokens, and the stream's
client_id on a hub started with ``--open``. Only the hub knows the issuer of a message's token (RESOLUTIONS
H18).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from veen_core.errors import DecodeError
from veen_core.ids import VerifyKey
from veen_overlays.wallet.rules import NO_RESTRICTION, WalletPolicy

KEYS: Final = ("currencies", "operators")


@dataclass(frozen=True, slots=True)
class LedgerScope:
    """The stream that wallets share (None if each wallet has its own), and the deployment's policy."""

    ledger: str | None
    policy: WalletPolicy


def read_policy(path: Path) -> WalletPolicy:
    """Read a policy file; raise a usage error that names the file and the mistake."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as exc:
        raise click.UsageError(f"--policy {path} is not JSON: {exc}") from None
    if type(found) is not dict or not set(found) <= set(KEYS):
        raise click.UsageError(f"--policy {path}: must be an object with the keys {' and '.join(KEYS)} only.")
    lists = {key: _texts(path, key, found[key]) for key in found}
    currencies, operators = (lists.get(key) for key in KEYS)
    try:
        keys = None if operators is None else frozenset(bytes(VerifyKey.from_hex(key)) for key in operators)
    except DecodeError as exc:
        raise click.UsageError(f"--policy {path}: operators: {exc}") from None
    return WalletPolicy(currencies=None if currencies is None else frozenset(currencies), operators=keys)


def _texts(path: Path, key: str, found: object) -> Collection[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise click.UsageError(f"--policy {path}: {key} must be a list of strings.")
    return found


def scope_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--ledger`` and ``--policy``; the command gets a ``scope``."""

    @wraps(work)
    def run(*args: Any, ledger: str | None, policy: Path | None, **options: Any) -> Any:
        scope = LedgerScope(ledger, NO_RESTRICTION if policy is None else read_policy(policy))
        return work(*args, scope=scope, **options)

    found: Callable[..., Any] = click.option(
        "--policy",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        envvar="VEEN_WALLET_POLICY",
        show_envvar=True,
        help="JSON file with the deployment's currencies and operators.",
    )(run)
    return click.option(
        "--ledger", help="Stream that many wallets share [default: the wallet's own stream]."
    )(found)
