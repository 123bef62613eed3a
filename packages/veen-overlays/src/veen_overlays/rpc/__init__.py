"""RPC0: requests and replies as records of a stream (spec-1 §24, RESOLUTIONS P15, ADR 0026).

``records`` has the records, ``exchange`` the correlation rules and error codes, which other request and reply
schemas use too (P16), ``call_table`` the state that all servers of a stream agree on, ``calls`` the overlay.
``veen_overlays.live.rpc`` has the server and the client.
"""

from veen_overlays.rpc.calls import CALLS, calls_of
from veen_overlays.rpc.exchange import RPC, Exchange
from veen_overlays.rpc.records import CallKey, ErrorBody, Reply, Request, ServerLease, Take, call_key

__all__ = [
    "CALLS",
    "RPC",
    "CallKey",
    "ErrorBody",
    "Exchange",
    "Reply",
    "Request",
    "ServerLease",
    "Take",
    "call_key",
    "calls_of",
]

OVERLAYS = (CALLS,)
