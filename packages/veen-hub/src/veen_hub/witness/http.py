"""The witness's routes and its server."""

from __future__ import annotations

from aiohttp import web

from veen_core.tlog.add_checkpoint import MAX_REQUEST_BYTES
from veen_hub.http.content import read_body
from veen_hub.http.tls import server_context
from veen_hub.witness.description import describe
from veen_hub.witness.witness import Witness

WITNESS = web.AppKey("witness", Witness)


async def add_checkpoint(request: web.Request) -> web.Response:
    witness = request.app[WITNESS]
    body = await read_body(request, MAX_REQUEST_BYTES, witness.config.listen.request_timeout_sec)
    answer = await witness.add_checkpoint(body)
    return web.Response(
        status=answer.status, body=answer.body.encode(), headers={"Content-Type": answer.content_type}
    )


async def checkpoint(request: web.Request) -> web.Response:
    """Serve the newest cosigned checkpoint of a log, with the log's signatures and the witness's."""
    witness = request.app[WITNESS]
    origin = witness.by_hash.get(request.match_info["hash"])
    cosigned = witness.memory.heads.get(origin) if origin is not None else None
    if cosigned is None:
        raise web.HTTPNotFound(text="this witness has cosigned no checkpoint of that log\n")
    return web.Response(body=cosigned.signed.encode(), headers={"Content-Type": "text/plain; charset=utf-8"})


async def contradiction(request: web.Request) -> web.Response:
    """Serve one contradiction as the file that `veen verify` reads."""
    memory = request.app[WITNESS].memory
    for found in list(memory.contradictions.values()):
        if (one := found.get(request.match_info["id"])) is not None:
            return web.Response(body=one.encode(), headers={"Content-Type": "application/cbor"})
    raise web.HTTPNotFound(text="there is no contradiction with this id\n")


async def logs(request: web.Request) -> web.Response:
    witness = request.app[WITNESS]
    return web.json_response(describe(witness.key.verifier, witness.logs, witness.memory))


async def healthz(request: web.Request) -> web.Response:
    return web.json_response({"ok": True, "witness": request.app[WITNESS].key.verifier.text})


async def metrics(request: web.Request) -> web.Response:
    return web.Response(
        body=request.app[WITNESS].metrics.expose(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


def make_app(witness: Witness) -> web.Application:
    app = web.Application(client_max_size=2**62)  # bodies are bounded where they are read
    app[WITNESS] = witness
    prefix = witness.config.listen.prefix
    app.add_routes(
        [
            web.post(f"{prefix}/add-checkpoint", add_checkpoint),
            web.get(f"{prefix}/{{hash:[0-9a-f]{{64}}}}/checkpoint", checkpoint),
            web.get(f"{prefix}/checkpoint/{{hash:[0-9a-f]{{64}}}}", checkpoint),
            web.get(f"{prefix}/contradiction/{{id:[0-9a-f]{{32}}}}", contradiction),
            web.get(f"{prefix}/logs", logs),
            web.get(f"{prefix}/healthz", healthz),
            web.get(f"{prefix}/metrics", metrics),
        ]
    )
    return app


class WitnessServer:
    """A witness with its listener: ``start`` listens, ``stop`` answers what waits and closes."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self._runner = web.AppRunner(make_app(witness), shutdown_timeout=5, access_log=None)

    async def start(self) -> str:
        listen, tls = self.witness.config.listen, self.witness.config.tls
        context = server_context(tls) if tls is not None else None
        self.witness.start()
        await self._runner.setup()
        site = web.TCPSite(self._runner, listen.host, listen.port, ssl_context=context)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return f"{'https' if context else 'http'}://{host}:{port}{listen.prefix}"

    async def stop(self) -> None:
        await self._runner.cleanup()
        self.witness.stop()
