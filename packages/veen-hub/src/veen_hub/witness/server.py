"""The witness's server: one listener; stopping it stops the witness."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from veen_hub.http.bounded_listener import BoundedListener, ListenerEndpoint
from veen_hub.http.tls import server_context
from veen_hub.ops.config import Tls
from veen_hub.witness.routes import make_app
from veen_hub.witness.witness import Witness

SHUTDOWN_SEC: Final = 5
"""How long a request in progress may take to end when the witness stops."""


class WitnessServer:
    """A witness with its listener: ``start`` listens, ``stop`` answers pending requests and closes."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self._listener: BoundedListener | None = None
        self._runner = web.AppRunner(make_app(witness, self._unsent), shutdown_timeout=SHUTDOWN_SEC)

    def _unsent(self) -> int:
        return self._listener.unsent if self._listener is not None else 0

    async def start(self) -> str:
        """Listen, and return the submission prefix; after a failure the witness is stopped."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> str:
        listen, tls = self.witness.config.listen, self.witness.config.tls
        context = server_context(Tls(cert=tls.cert, key=tls.key)) if tls is not None else None
        await self._runner.setup()
        endpoint = ListenerEndpoint.of("listen", listen, port=listen.port)
        self._listener = BoundedListener(
            self._runner, endpoint, context, slow_client_sec=listen.slow_client_sec
        )
        await self._listener.start()
        return f"{self._listener.name}{listen.prefix}"

    async def stop(self) -> None:
        """Stop accepting connections, answer the requests in progress, and close the state."""
        for site in list(self._runner.sites):
            await site.stop()
        await self._runner.cleanup()
        await self.witness.stop()
