"""The errors that veen_spark raises, in addition to those of ``veen_core``.

    VeenError
    ├── ConfigError
    │   └── SparkSetupError         Spark, Java, a master or an option of the data source is not usable
    │       └── ClusterUnreachable  no server answers at the master's address
    └── VerificationError
        └── DamagedLog              a log file is damaged; the error names file and byte

An error on an executor reaches the driver only as text inside Spark's own exception, so every message is
complete in itself.
"""

from __future__ import annotations

from veen_core.errors import ConfigError, VerificationError


class SparkSetupError(ConfigError):
    """Spark, Java, a master or an option of the data source is not usable."""


class ClusterUnreachable(SparkSetupError):  # noqa: N818 - like Unreachable of the hub's client
    """No server answers at the master's address."""


class DamagedLog(VerificationError):  # noqa: N818 - users know this noun from reports
    """A log file is damaged or incomplete (core §4.8)."""

    def __init__(self, file: str, offset: int, reason: str, *, action: str = "fetch the file again") -> None:
        super().__init__(f"{file}, byte {offset}: {reason}", action=action)
        self.file = file
        self.offset = offset
        self.reason = reason
