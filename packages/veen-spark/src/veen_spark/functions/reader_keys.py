"""Reader keys for executors: by files that lie there, or by a broadcast; never by a plan, a log or a sink.

A file is what ``veen keygen --no-passphrase`` writes (``secrets.cbor``), the folder it lies in, or 32 bytes
of an X25519 secret, raw or in hex. Only its path travels; nobody but its owner may be able to read it. A
broadcast moves the keys themselves, by Spark's own channel; set ``spark.io.encryption.enabled`` and
``spark.network.crypto.enabled`` where that channel leaves the machine. A Spark Connect session has no
broadcasts: what a function holds would be part of the plan, so keys come by file there.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veen_core.errors import VeenError
from veen_core.keys import DhKey, DhSecret
from veen_core.keystore import Secrets
from veen_spark.errors import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN: Final = "secrets.cbor"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class ReaderKeys:
    """Which keys open messages; ``get`` gives them, where the work is done."""

    __slots__ = ("_broadcast", "_files")

    def __init__(self, files: Iterable[str | Path] = (), broadcast: Any = None) -> None:
        self._files = tuple(map(str, files))
        self._broadcast = broadcast

    @classmethod
    def from_files(cls, *files: str | Path) -> ReaderKeys:
        """Read by whoever opens: each path must be there on every executor."""
        if not files:
            raise SparkSetupError("no file with a reader key was named")
        return cls(files)

    @classmethod
    def broadcast(cls, spark: SparkSession, keys: Iterable[DhKey]) -> ReaderKeys:
        """Handed to every executor; ``forget`` takes them back."""
        try:
            context = spark.sparkContext
        except Exception as exc:
            raise SparkSetupError(
                "a Spark Connect session has no broadcasts: name files that lie on the executors"
            ) from exc
        return cls(broadcast=context.broadcast([bytes(key.secret) for key in keys]))

    def get(self) -> tuple[DhKey, ...]:
        """The keys, on an executor or on the driver."""
        held = () if self._broadcast is None else self._broadcast.value
        broadcast = tuple(DhKey(DhSecret(secret)) for secret in held)
        return broadcast + tuple(key for file in self._files for key in keys_in(file))

    def forget(self) -> None:
        """Remove a broadcast from driver and executors."""
        if self._broadcast is not None:
            self._broadcast.destroy()

    def __repr__(self) -> str:
        shown = f"files={self._files!r}" if self._broadcast is None else "broadcast=<secret>"
        return f"ReaderKeys({shown})"


@cache  # once a worker process: each batch asks again
def keys_in(file: str) -> tuple[DhKey, ...]:
    """The keys of one file, or of the identity's folder it stands for."""
    path = Path(file)
    path = path / PLAIN if path.is_dir() else path
    try:
        content, mode = path.read_bytes(), path.stat().st_mode
    except OSError as exc:
        raise SparkSetupError(
            f"{path}: no reader key can be read there ({exc.strerror}); put it on every executor"
        ) from None
    if mode & _OTHERS:
        raise SparkSetupError(f"{path} can be read by others: `chmod 600 {path}` first")
    with contextlib.suppress(VeenError):
        return Secrets.decode(content).dh_keys
    with contextlib.suppress(VeenError, ValueError):
        secret = content if len(content) == DhSecret.SIZE else bytes.fromhex(content.decode("ascii"))
        return (DhKey(DhSecret(secret)),)
    raise SparkSetupError(
        f"{path} holds no reader key: want {PLAIN} (veen keygen --no-passphrase), or 32 bytes, raw or in hex"
    )
