"""The rates of the three clients, measured in one run on one hub.

The clients take turns in every round, and a rate is the median of the rounds: a machine is slow or fast for
seconds at a time, which must affect all clients. Connections, streams and signed messages are made before a
measurement starts.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import statistics
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from veen_core.cap import CapToken, mint
from veen_core.ids import ClientId, Epoch, HubId, Label
from veen_core.keys import SigningKey, SigningSeed
from veen_core.status import Status
from veen_core.stream import label, routing_key, stream_id
from veen_hub.client import Hub, Identity, Tls, connect
from veen_hub.client.connecting import MESSAGES_PER_REQUEST as SHIPPED_BATCH
from veen_hub.load.http_clients import (
    CONCURRENT_BATCHES,
    MESSAGES_PER_BATCH,
    HttpClient,
    LoadConnection,
    lanes_of,
)
from veen_hub.load.plain import open_plain
from veen_hub.load.raw import RawConnection, RefusalFactory, open_raw, unexpected
from veen_hub.load.shipped import BODY, ShippedClient
from veen_hub.load.signer import MessageSigner

TOKEN_SECONDS: Final = 1_000_000
IN_FLIGHT: Final = 256
"""Messages in flight."""
SHIPPED: Final = ("client that ships (veen_hub.client)", "seals, signs, keeps a journal, verifies, opens")
PLAIN: Final = ("plain HTTP client (aiohttp)", "messages signed beforehand; verifies nothing")
RAW: Final = ("raw generator", "what the hub can take; no user has this client")

COLUMNS: Final = ("one_by_one", "in_flight", "batches", "reading")

LEGEND: Final = (
    f"in flight: {IN_FLIGHT} messages at a time; the client that ships uses one stream, the other two "
    f"{IN_FLIGHT}",
    f"batches: the client that ships sends {SHIPPED_BATCH} messages per request with 1 request in flight, "
    f"the other two {MESSAGES_PER_BATCH} with {CONCURRENT_BATCHES}",
    "reading: one stream from its beginning; all three run on uvloop",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """The hub to load; ``admin`` issues tokens, and is None if the hub is not gated."""

    url: str
    hub_id: HubId
    admin: SigningKey | None = None
    tls: Tls | None = None
    refused: RefusalFactory = unexpected
    """Makes the error of a refused request."""

    def load_tls(self) -> ssl.SSLContext | None:
        """Load the certificates, which takes some time; None without TLS."""
        return (self.tls or Tls()).context() if self.url.startswith("https:") else None

    def label(self, stream: str) -> Label:
        return label(routing_key(self.hub_id), stream_id(stream), Epoch(0))

    def token(self, subject: ClientId, streams: Sequence[str]) -> CapToken:
        assert self.admin is not None
        return mint(self.admin, subject, map(stream_id, streams), TOKEN_SECONDS)

    def open_raw(self, tls: ssl.SSLContext | None) -> contextlib.AbstractAsyncContextManager[RawConnection]:
        parts = urlsplit(self.url)
        return open_raw(
            parts.hostname or "127.0.0.1",
            parts.port or (443 if parts.scheme == "https" else 80),
            tls=tls,
            prefix=parts.path,
            refused=self.refused,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSizes:
    """Messages per client and round."""

    one_by_one: int
    per_sender: int
    """Messages of each sender while ``senders`` send at once."""
    batches: int
    senders: int = IN_FLIGHT
    rounds: int = 3

    def __post_init__(self) -> None:
        if self.senders < CONCURRENT_BATCHES or self.batches % CONCURRENT_BATCHES:
            raise ValueError(
                f"at least {CONCURRENT_BATCHES} senders, and a multiple of {CONCURRENT_BATCHES} in batches"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRates:
    """Messages per second of one client."""

    client: str
    about: str
    one_by_one: float
    in_flight: float
    batches: float
    reading: float


class LoadClient(Protocol):
    """Work for one client; each method returns the seconds that it took."""

    async def one_by_one(self, stream: str, count: int) -> float: ...

    async def in_flight(self, stream: str, senders: int, each: int) -> float: ...

    async def batches(self, stream: str, count: int) -> float: ...

    async def reading(self, stream: str, count: int) -> float: ...


class Contender:
    """One client, its streams, and its rates so far.

    No two clients write to one stream: the client that ships would have to verify what the others wrote.
    """

    def __init__(self, title: tuple[str, str], client: LoadClient, prefix: str, sizes: LoadSizes) -> None:
        self._title = title
        self._client = client
        self._prefix = prefix
        self._sizes = sizes
        self._rates: dict[str, list[float]] = {column: [] for column in COLUMNS}

    async def warm_up(self) -> None:
        """Open all streams and connections."""
        await self._client.one_by_one(f"{self._prefix}/one", 1)
        await self._client.in_flight(f"{self._prefix}/flight", self._sizes.senders, 1)

    async def measure(self, column: str, turn: int, shared: str) -> None:
        """Measure one column; every client reads the stream that ``shared`` wrote in this round."""
        sizes, client = self._sizes, self._client
        match column:
            case "one_by_one":
                count = sizes.one_by_one
                seconds = await client.one_by_one(f"{self._prefix}/one", count)
            case "in_flight":
                count = sizes.per_sender * sizes.senders
                seconds = await client.in_flight(f"{self._prefix}/flight", sizes.senders, sizes.per_sender)
            case "batches":
                count = sizes.batches
                seconds = await client.batches(batch_stream(self._prefix, turn), count)
            case _:
                count = sizes.batches
                seconds = await client.reading(batch_stream(shared, turn), count)
        self._rates[column].append(count / seconds)

    def rates(self) -> ClientRates:
        name, about = self._title
        medians = {column: round(statistics.median(found), 1) for column, found in self._rates.items()}
        return ClientRates(client=name, about=about, **medians)


def batch_stream(prefix: str, turn: int) -> str:
    """Return the stream of one round: a new one, so that its reader has verified nothing of it yet."""
    return f"{prefix}/batches/{turn}"


def all_streams(prefix: str, sizes: LoadSizes) -> list[str]:
    flight, batches = f"{prefix}/flight", [batch_stream(prefix, turn) for turn in range(sizes.rounds)]
    lanes = [lane for stream in batches for lane in lanes_of(stream, CONCURRENT_BATCHES)]
    return [f"{prefix}/one", flight, *lanes_of(flight, sizes.senders), *batches, *lanes]


async def measure_clients(
    target: LoadTarget, sizes: LoadSizes, state: Path, prefix: str = "load"
) -> list[ClientRates]:
    """Return the rates of the three clients, the raw generator last.

    ``state`` is the state folder of the client that ships; ``prefix`` begins the names of all streams.
    """
    shipped = f"{prefix}/shipped"
    async with (
        connected(target, state, all_streams(shipped, sizes)) as hub,
        contextlib.AsyncExitStack() as stack,
    ):
        status = await hub.status()
        tls = target.load_tls()
        raw = [await stack.enter_async_context(target.open_raw(tls)) for _ in range(sizes.senders)]
        session = await stack.enter_async_context(
            open_plain(target.url, connections=sizes.senders, tls=tls, refused=target.refused)
        )
        contenders = [Contender(SHIPPED, ShippedClient(hub), shipped, sizes)]
        http_clients: list[tuple[tuple[str, str], str, Sequence[LoadConnection]]] = [
            (PLAIN, f"{prefix}/plain", [session] * sizes.senders),
            (RAW, f"{prefix}/raw", raw),
        ]
        for title, streams, connections in http_clients:
            client = HttpClient(
                connections,
                await signer(target, status, raw[0], all_streams(streams, sizes)),
                label_of=target.label,
                page=status.max_page_items,
                refused=target.refused,
            )
            contenders.append(Contender(title, client, streams, sizes))
        for each in contenders:
            await each.warm_up()
        for turn in range(sizes.rounds):
            for column in COLUMNS:
                first = turn % len(contenders)  # the first reader of a page finds cold caches
                for each in contenders[first:] + contenders[:first]:
                    await each.measure(column, turn, shipped)
    return [each.rates() for each in contenders]


@contextlib.asynccontextmanager
async def connected(target: LoadTarget, state: Path, streams: Sequence[str]) -> AsyncIterator[Hub]:
    """Connect the client that ships, with a new identity and a token for these streams."""
    identity = Identity.generate()
    async with connect(target.url, identity, trust=target.hub_id, state=state, tls=target.tls) as hub:
        if target.admin is not None:
            await hub.authorize(target.token(identity.client_id, streams))
        yield hub


async def signer(
    target: LoadTarget, status: Status, connection: RawConnection, streams: Sequence[str]
) -> MessageSigner:
    """Return a signer with a new key and a token for these streams."""
    key = SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE)))
    auth_ref = None
    if target.admin is not None:
        token = target.token(ClientId(key.public), streams)
        await connection.post("/tooling/authorize", token.encode())
        auth_ref = token.auth_ref
    return MessageSigner(key, status.profile, auth_ref, BODY.encode())


def table(rows: Sequence[ClientRates]) -> Iterator[str]:
    """Yield the rates as lines for people."""
    if not rows:
        return
    heads = ("one by one", "in flight", "batches", "reading")
    yield f"{'messages/s':<36}" + "".join(f"{head:>12}" for head in heads)
    for row in rows:
        values = (row.one_by_one, row.in_flight, row.batches, row.reading)
        yield f"{row.client:<36}" + "".join(f"{value:>12,.0f}" for value in values) + f"   {row.about}"
    yield from LEGEND
