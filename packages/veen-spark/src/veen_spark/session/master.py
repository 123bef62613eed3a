"""The forms of a Spark master, and a check that a server answers at its address.

``local[N]`` runs in this process. A standalone cluster (``spark://…``) and Spark Connect (``sc://…``) have
addresses, which are tried before Spark starts: Spark itself gives up only after minutes and does not name the
address.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from veen_spark.errors import ClusterUnreachable, SparkSetupError

LOCAL: Final = "local[*]"
_DEFAULT_PORTS: Final = {"spark": 7077, "sc": 15002}
"""Default ports by scheme; addresses of other schemes are not tried."""
_CONNECT_TIMEOUT_SEC: Final = 10.0


def is_local(master: str) -> bool:
    """Return whether Spark runs in this process."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Return whether the session runs in a Spark Connect server."""
    return master.startswith("sc://")


def require_answer(master: str) -> None:
    """Raise ``ClusterUnreachable`` unless one of the master's addresses accepts connections."""
    last = None
    for address in _addresses(master):
        try:
            with contextlib.closing(socket.create_connection(address, timeout=_CONNECT_TIMEOUT_SEC)):
                return
        except OSError as exc:
            last = exc
    if last is not None:
        raise ClusterUnreachable(
            f"no server answers at {master}: {last.strerror or last}",
            action="check that the cluster runs and that --master is its address",
        )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    """Yield the addresses of a master: ``spark://one:7077,two:7077`` has two."""
    scheme, _, rest = master.partition("://")
    if scheme not in _DEFAULT_PORTS:
        return
    for each in rest.split("/")[0].split(","):
        try:
            parts = urlsplit(f"//{each}")
            host, port = parts.hostname, parts.port
        except ValueError as exc:
            raise SparkSetupError(
                f"{master} is not an address: {exc}", action=f"use {scheme}://HOST:PORT"
            ) from None
        if not host:
            raise SparkSetupError(f"{master} is not an address", action=f"use {scheme}://HOST:PORT")
        yield host, port or _DEFAULT_PORTS[scheme]
