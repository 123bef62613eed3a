"""Load on a hub from outside, by three clients, each measured under its own name.

- ``ShippedClient`` is ``veen_hub.client``: the rates that an application can expect.
- The plain HTTP client is aiohttp. It sends messages that are signed beforehand and verifies nothing.
- The raw generator parses as little as possible. It shows what the hub can take; no user has it.

The hub's benchmark and ``veen selftest perf`` use this package. It needs the hub's address and
``veen_hub.client``, and no other part of the hub.
"""

from veen_hub.load.comparison import ClientRates, LoadSizes, LoadTarget, measure_clients, table
from veen_hub.load.http_clients import MESSAGES_PER_BATCH, batched
from veen_hub.load.plain import PlainConnection, open_plain
from veen_hub.load.raw import CBOR, CBOR_SEQ, RawConnection, open_raw, request_of
from veen_hub.load.shipped import BODY, ShippedClient
from veen_hub.load.signer import MessageSigner

__all__ = [
    "BODY",
    "CBOR",
    "CBOR_SEQ",
    "MESSAGES_PER_BATCH",
    "ClientRates",
    "LoadSizes",
    "LoadTarget",
    "MessageSigner",
    "PlainConnection",
    "RawConnection",
    "ShippedClient",
    "batched",
    "measure_clients",
    "open_plain",
    "open_raw",
    "request_of",
    "table",
]
