"""The version this hub reports as ``server_version`` (§10.3)."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

VERSION: Final = version("veen-hub")
