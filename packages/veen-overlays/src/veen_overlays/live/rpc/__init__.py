"""Server and client of RPC0 over the log of a stream (spec-1 §24, RESOLUTIONS P15, ADR 0026).

Serve methods:

    service = Service()

    @service.method("translate")
    async def translate(text: str, to: str = "de") -> str: ...

    async with connect(url, identity, trust=hub_id, state=folder) as hub:
        stream = hub.stream("translations", readers=[reader_key])
        server = RpcServer(service, access(stream, hub.log_reader()), identity.signing_key)
        await server.run()                      # until server.stop(), which drains

Call them:

        async with connect_rpc(access(stream, hub.log_reader())) as client:
            text = await client.call("translate", {"text": "good morning"}, timeout=5)

Requests and replies with other schemas use the same correlation, idempotency and deadlines (P16). Declare the
pair as an ``Exchange``, serve it with a handler from request record to reply record, and call it:

    DISC = Exchange(request=DiscQuery, reply=DiscResult, method_of=lambda r: "disc.query",
                    code_of=lambda r: None if r.error is None else r.error.code, failed=make_error_result)
    service.serve(DISC, "disc.query", handler)   # async def handler(request, call) -> DiscResult
    async with connect_rpc(access, exchanges=[DISC]) as client:
        done = await client.exchange(DISC, lambda timeout_ms, reply_to: DiscQuery(...), "disc.query")
        done.reply                               # a DiscResult

A handler reports errors with ``CallError(code, detail)``, and arguments that do not fit with
``veen_overlays.rpc.arguments.ArgumentError``.
"""

from veen_overlays.live.rpc.call_stream import CallStream, StreamAccess, access
from veen_overlays.live.rpc.client import Exchanged, RpcClient, RpcError, connect_rpc
from veen_overlays.live.rpc.counters import ServerCounters
from veen_overlays.live.rpc.server import RpcServer
from veen_overlays.live.rpc.service import Call, CallError, Service

__all__ = [
    "Call",
    "CallError",
    "CallStream",
    "Exchanged",
    "RpcClient",
    "RpcError",
    "RpcServer",
    "ServerCounters",
    "Service",
    "StreamAccess",
    "access",
    "connect_rpc",
]
