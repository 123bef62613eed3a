"""Masters: the forms of ``--master``, and whether anybody is there.

``local[N]`` is this process's own. A standalone cluster (``spark://…``) and Spark Connect (``sc://…``) are an
address each, which is tried first: Spark itself takes minutes to give up, and does not say on what.
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
"""Where they listen if an address has no port; any other form is not tried."""
_CONNECT_TIMEOUT_SEC: Final = 10.0


def is_local(master: str) -> bool:
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Spark Connect: the session lives in a server, this process has none of Spark's own."""
    return master.startswith("sc://")


def require_answer(master: str) -> None:
    """One of the master's addresses takes connections; raises ``ClusterUnreachable``."""
    last = None
    for address in _addresses(master):
        try:
            with contextlib.closing(socket.create_connection(address, timeout=_CONNECT_TIMEOUT_SEC)):
                return
        except OSError as exc:
            last = exc
    if last is not None:
        raise ClusterUnreachable(
            f"nobody answers at {master} ({last.strerror or last}): is it running, and is this its address?"
        )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    """``spark://one:7077,two:7077`` has several; ``sc://host:15002/;token=…`` has one."""
    scheme, _, rest = master.partition("://")
    if scheme not in _DEFAULT_PORTS:
        return
    for each in rest.split("/")[0].split(","):
        try:
            parts = urlsplit(f"//{each}")
            host, port = parts.hostname, parts.port
        except ValueError as exc:
            raise SparkSetupError(f"{master} is no address: {exc}") from None
        if not host:
            raise SparkSetupError(f"{master} is no address: want {scheme}://HOST:PORT")
        yield host, port or _DEFAULT_PORTS[scheme]
