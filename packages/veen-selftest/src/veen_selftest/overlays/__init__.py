"""The suite ``overlays``: calls, directories, operations and wallets through the hub."""

from __future__ import annotations

from typing import Final

from veen_selftest.overlays import calls, directory, operations, wallets

CHECKS: Final = (*calls.CHECKS, *directory.CHECKS, *operations.CHECKS, *wallets.CHECKS)
