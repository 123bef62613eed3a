"""Which ledger a wallet command looks at, and what its deployment allows there (WAL 2.2, 3.1, §8).

A policy is a JSON file: {"currencies": ["EUR"], "operators": ["<key in hex>"]}. Either may be left out, which
restricts nothing. An operator is named as WAL §8 does: by the key of its service, which signs its messages
(its identity's where a token names it, as on a gated hub; on an open one the stream's client_id), or by the
key of the organisation that issued the service's token. For the issuer its hub vouches (H18).
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
    """A stream that many wallets share, or each wallet's own; and the policy."""

    ledger: str | None
    policy: WalletPolicy


def read_policy(path: Path) -> WalletPolicy:
    """From its file; a usage error names what is wrong with it."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as exc:
        raise click.UsageError(f"--policy {path}: not JSON: {exc}") from None
    if type(found) is not dict or not set(found) <= set(KEYS):
        raise click.UsageError(f"--policy {path}: want an object with {' and '.join(KEYS)}, no more.")
    lists = {key: _texts(path, key, found[key]) for key in found}
    currencies, operators = (lists.get(key) for key in KEYS)
    try:
        keys = None if operators is None else frozenset(bytes(VerifyKey.from_hex(key)) for key in operators)
    except DecodeError as exc:
        raise click.UsageError(f"--policy {path}: operators: {exc}") from None
    return WalletPolicy(currencies=None if currencies is None else frozenset(currencies), operators=keys)


def _texts(path: Path, key: str, found: object) -> Collection[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise click.UsageError(f"--policy {path}: {key}: want a list of texts.")
    return found


def scope_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """The options ``--ledger`` and ``--policy``; the command gets a ``scope``."""

    @wraps(work)
    def run(*args: Any, ledger: str | None, policy: Path | None, **options: Any) -> Any:
        scope = LedgerScope(ledger, NO_RESTRICTION if policy is None else read_policy(policy))
        return work(*args, scope=scope, **options)

    found: Callable[..., Any] = click.option(
        "--policy",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        envvar="VEEN_WALLET_POLICY",
        show_envvar=True,
        help="JSON file: the deployment's currencies, and who its operators are.",
    )(run)
    return click.option(
        "--ledger", help="A stream that many wallets share [default: the wallet's own stream]."
    )(found)
