"""Answers for failures of the hub itself; the reason is in the hub's log only.

They have a module of their own because the examiner's process imports this one and not the sequencer, with
which it would import the whole storage package, and take two thirds longer to start.
"""

from __future__ import annotations

from veen_core.errors import ApiError
from veen_core.rejection import Code


def storage_failed() -> ApiError:
    """E.UNAVAILABLE for a failure of storage."""
    return ApiError(Code.UNAVAILABLE, "storage failed: see the hub's log", retry_after=5)


def internal_error() -> ApiError:
    """E.UNAVAILABLE for a bug; its traceback is in the hub's log."""
    return ApiError(Code.UNAVAILABLE, "internal error: see the hub's log", retry_after=5)
