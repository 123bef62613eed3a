"""What veen_spark raises on purpose, beside the errors of ``veen_core``.

    VeenError
    ├── ConfigError
    │   └── SparkSetupError   Spark, Java, a master or an option of the data source is not usable
    │       └── ClusterUnreachable  nobody answers at the master's address
    └── VerificationError
        └── DamagedLog        a log file does not hold what it should; names file and offset

Errors cross from executors to the driver as text, inside Spark's own exception: their messages stand alone.
"""

from __future__ import annotations

from veen_core.errors import ConfigError, VerificationError


class SparkSetupError(ConfigError):
    """Spark cannot be started or asked this way; the message says what to change."""


class ClusterUnreachable(SparkSetupError):  # noqa: N818 - as the hub's client says Unreachable
    """Nobody answers at the master's address."""


class DamagedLog(VerificationError):  # noqa: N818 - the noun that users meet in reports
    """A log file does not hold what it should, at a byte (§4.8)."""

    def __init__(self, file: str, offset: int, what: str, *, otherwise: str = "") -> None:
        """``otherwise``: what else can be done than to fetch the file again."""
        super().__init__(f"{file}, byte {offset}: {what}; fetch it again{otherwise}")
        self.file = file
        self.offset = offset
        self.what = what
