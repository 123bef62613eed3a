"""How many of the cases that a slow test counts up are tried: a share in the usual run, all on demand.

VEEN_THOROUGH=1 bin/test -e storage
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
THOROUGH = bool(os.environ.get("VEEN_THOROUGH"))


def share(cases: Sequence[T], of: int, part: int = 0) -> Sequence[T]:
    """Return every ``of``-th case from ``part`` on; all of them if ``THOROUGH``."""
    return cases if THOROUGH else cases[part % of :: of]
