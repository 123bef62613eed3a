"""Reader keys on executors: read from files, or broadcast. A key is never in a plan, a log or a sink.

A key file is ``secrets.cbor`` of ``veen keygen --no-passphrase``, the folder that holds it, or a file with
the 32 bytes of an X25519 secret, raw or in hex. Only the path is sent to executors. The file must be
readable by its owner only. A broadcast sends the keys themselves over Spark's own channel: on a cluster, set
``spark.io.encryption.enabled`` and ``spark.network.crypto.enabled``. A Spark Connect session has no
broadcasts, so keys must come from files there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veen_core.errors import VeenError
from veen_core.keys import DhKey, DhSecret
from veen_core.keystore import Secrets, is_exposed
from veen_spark.errors import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRETS_FILE: Final = "secrets.cbor"


class ReaderKeys:
    """The source of the keys that open messages; ``get`` loads them on the executor."""

    __slots__ = ("_broadcast", "_files")

    def __init__(self, files: Iterable[str | Path] = (), broadcast: Any = None) -> None:
        self._files = tuple(map(str, files))
        self._broadcast = broadcast

    @classmethod
    def from_files(cls, *files: str | Path) -> ReaderKeys:
        """Read the keys from these files, which must exist on every executor."""
        if not files:
            raise SparkSetupError("no reader key was given", action="name at least one file")
        return cls(files)

    @classmethod
    def broadcast(cls, spark: SparkSession, keys: Iterable[DhKey]) -> ReaderKeys:
        """Send keys to every executor; ``forget`` removes them."""
        try:
            context = spark.sparkContext
        except Exception as exc:
            raise SparkSetupError(
                "a Spark Connect session has no broadcasts",
                action="use ReaderKeys.from_files with files on the server",
            ) from exc
        return cls(broadcast=context.broadcast([bytes(key.secret) for key in keys]))

    def get(self) -> tuple[DhKey, ...]:
        """Load the keys, on an executor or on the driver."""
        secrets = () if self._broadcast is None else self._broadcast.value
        broadcast = tuple(DhKey(DhSecret(secret)) for secret in secrets)
        return broadcast + tuple(key for file in self._files for key in keys_in(file))

    def forget(self) -> None:
        """Remove broadcast keys from the driver and the executors."""
        if self._broadcast is not None:
            self._broadcast.destroy()

    def __repr__(self) -> str:
        shown = f"files={self._files!r}" if self._broadcast is None else "broadcast=<secret>"
        return f"ReaderKeys({shown})"


@cache  # one read per worker process, not one per batch
def keys_in(file: str) -> tuple[DhKey, ...]:
    """Return the keys in a file, or in the secrets file of an identity's folder."""
    path = Path(file)
    path = path / SECRETS_FILE if path.is_dir() else path
    try:
        content, found = path.read_bytes(), path.stat()
    except OSError as exc:
        raise SparkSetupError(
            f"{path} cannot be read: {exc.strerror}",
            action="check the path; every executor needs the key file",
        ) from None
    if is_exposed(found, os.geteuid(), (os.getegid(), *os.getgroups())):
        raise SparkSetupError(f"{path} can be read by other users", action=f"run `chmod 600 {path}` first")
    with contextlib.suppress(VeenError):
        return Secrets.decode(content).dh_keys
    with contextlib.suppress(VeenError, ValueError):
        secret = content if len(content) == DhSecret.SIZE else bytes.fromhex(content.decode("ascii"))
        return (DhKey(DhSecret(secret)),)
    raise SparkSetupError(
        f"{path} is not a reader key",
        action=f"use {SECRETS_FILE} of `veen keygen --no-passphrase`, or 32 bytes, raw or in hex",
    )
