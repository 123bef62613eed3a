"""A hub in a few lines that signs whatever a test wants: it forks, rolls back, and drops labels.

``History`` is what a hub could have in its storage: labels and the hub log over them. ``ForgedHub`` serves a
history over HTTP with its own key, and can be made to serve another at any moment.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self

from aiohttp import web

from veen_core import hub_identity, hub_log, stream
from veen_core.api import (
    ConsistencyRequest,
    ConsistencyResponse,
    ErrorEnvelope,
    ReceiptRequest,
    ReceiptResponse,
)
from veen_core.consistency import prove_consistency
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.ids import Epoch, Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import SigningKey
from veen_core.limits import DEFAULT_LIMITS
from veen_core.mmr import Mmr
from veen_core.pow import PowSalt
from veen_core.profile import DEFAULT_PROFILE
from veen_core.receipt import Receipt, sign_receipt
from veen_core.rejection import Code
from veen_core.status import Status
from veen_core.tlog import tree
from veen_core.tlog.note import Note, NoteKey, NoteSignature, cosign, sign_note
from veen_core.tlog.tiles import ENTRIES, Tile, encode_bundle, parse_path
from veen_core.tlog.tree import Tree
from veen_core.tlog.tree_head import SignedHead, TreeHead

from .people import BORN, signing_key

KEY = signing_key("forged hub")
IDENTITY = hub_identity.new_identity(KEY, UnixTime(BORN))
HUB_ID = IDENTITY.hub_id
ORIGIN = hub_log.origin_of(HUB_ID)


def label(name: str) -> Label:
    return Label(sha256(name.encode()).digest())


@dataclass
class Nodes:
    """The nodes of a growing tree, and its root at every size."""

    tree: Tree | Mmr
    nodes: dict[tuple[int, int], bytes] = field(default_factory=dict)
    roots: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.roots.append(tree.EMPTY_ROOT)

    @property
    def size(self) -> int:
        return self.tree.size

    def append(self, leaf: bytes) -> None:
        for node in self.tree.append(leaf):
            self.nodes[node.height, node.index] = node.hash
        self.roots.append(self.tree.root)

    def look_up(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]


@dataclass
class History:
    """Labels and the hub log of a hub."""

    now: int = BORN
    labels: dict[str, Nodes] = field(default_factory=dict)
    times: dict[str, list[int]] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    log: Nodes = field(default_factory=lambda: Nodes(Tree()))
    entries: list[bytes] = field(default_factory=list)

    def copy(self) -> History:
        return copy.deepcopy(self)

    def send(self, name: str, *messages: str) -> Receipt:
        """Append messages to a label; return the receipt of the last."""
        self.now += 1
        nodes = self.labels.setdefault(name, Nodes(Mmr()))
        for message in messages:
            nodes.append(tree.leaf_hash(f"{name} {message}".encode()))
            self.times.setdefault(name, []).append(self.now)
        self.moved.add(name)
        return self.receipt(name, nodes.size)

    def receipt(self, name: str, seq: int, key: SigningKey = KEY) -> Receipt:
        nodes = self.labels[name]
        return sign_receipt(
            key,
            Receipt(
                label=label(name),
                stream_seq=StreamSeq(seq),
                leaf_hash=LeafHash(nodes.nodes[0, seq - 1]),
                mmr_root=MmrRoot(nodes.roots[seq]),
                hub_ts=UnixTime(self.times[name][seq - 1]),
            ),
        )

    def head(self, name: str, upto: int | None = None) -> LabelHead:
        nodes = self.labels[name]
        upto = nodes.size if upto is None else upto
        return LabelHead(
            label=label(name),
            upto_seq=StreamSeq(upto),
            mmr_root=MmrRoot(nodes.roots[upto]),
            hub_ts=UnixTime(self.times[name][upto - 1]),
        )

    def add(self, head: LabelHead | bytes) -> None:
        """Append any entry to the hub log."""
        entry = head if isinstance(head, bytes) else head.encode()
        self.entries.append(entry)
        self.log.append(tree.leaf_hash(entry))

    def extend(self, *leaving_out: str) -> Self:
        """Extend the hub log by the labels that moved, in order of labels, as an honest hub does."""
        for name in sorted(self.moved - {*leaving_out}, key=label):
            self.add(self.head(name))
        self.moved.clear()
        return self

    def grow(self, name: str, times: int) -> Self:
        """Send one message and extend the hub log, so many times."""
        for _ in range(times):
            self.send(name, f"message {self.now}")
            self.extend()
        return self

    def checkpoint(
        self, size: int | None = None, *, key: SigningKey = KEY, origin: str = ORIGIN, by: Sequence[Any] = ()
    ) -> SignedHead:
        """Sign the tree at a size; ``by`` are witnesses that cosign."""
        size = self.log.size if size is None else size
        head = TreeHead(origin, size, self.log.roots[size])
        signatures = [sign_note(key, origin, head.text), *(each.cosign(head) for each in by)]
        return SignedHead(head, Note(head.text, tuple(signatures)))


@dataclass(frozen=True)
class ForgedWitness:
    """A witness's key."""

    name: str

    @property
    def key(self) -> SigningKey:
        return signing_key(self.name)

    @property
    def verifier(self) -> NoteKey:
        return NoteKey(self.name, 0x04, self.key.public)

    def cosign(self, head: TreeHead, now: int | None = None) -> NoteSignature:
        return cosign(self.key, self.name, head.text, UnixTime(now if now is not None else BORN + 1_000))


class Served:
    """An aiohttp application in a thread of its own."""

    url: str

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self.asked: list[str] = []

    def routes(self) -> list[web.RouteDef]:
        raise NotImplementedError

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._runner is not None
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(middlewares=[self._note])
        app.add_routes(self.routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(request.path)
        answer: web.StreamResponse = await handler(request)
        return answer


def _refused(what: str) -> web.Response:
    error = ErrorEnvelope(code=Code.NOT_FOUND, message=what)
    return web.Response(status=404, body=error.encode(), content_type="application/cbor")


class ForgedHub(Served):
    """Serves a history; every part of it can be replaced while it runs."""

    def __init__(self, history: History, *, identity: HubIdentity = IDENTITY, key: SigningKey = KEY) -> None:
        super().__init__()
        self.history = history
        """Of which labels, tiles and receipts are served."""
        self.shown: SignedHead | None = None
        """The checkpoint that is shown; None shows that of the whole history."""
        self.signed_by: list[Any] = []
        self.identity, self.key = identity, key
        self.origin: str | None = None
        self.spoil: Callable[[str, bytes], bytes] = lambda _path, data: data
        """Changes answers on their way."""
        self.is_silent = False

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/status", self._status),
            web.get("/log/checkpoint", self._checkpoint),
            web.get("/log/tile/{path:.+}", self._tile),
            web.post("/v1/consistency", self._consistency),
            web.post("/v1/receipt", self._receipt),
        ]

    def newest(self) -> SignedHead:
        if self.shown is not None:
            return self.shown
        return self.history.checkpoint(key=self.key, origin=self.origin or ORIGIN, by=self.signed_by)

    def _answer(self, request: web.Request, data: bytes, kind: str = "application/cbor") -> web.Response:
        if self.is_silent:
            return web.Response(status=503)
        return web.Response(body=self.spoil(request.path, data), content_type=kind)

    async def _status(self, request: web.Request) -> web.Response:
        hub_id = self.identity.hub_id
        status = Status(
            identity=self.identity,
            identity_sig=hub_identity.sign_identity(self.key, self.identity),
            profile=DEFAULT_PROFILE,
            limits=DEFAULT_LIMITS,
            hub_ts=UnixTime(self.history.now),
            epoch=Epoch(0),
            control_label=stream.control_label(stream.routing_key(hub_id)),
            gating=False,
            enforces=(),
            cannot_enforce=(),
            pow_salt=PowSalt(bytes(32)),
            pow_difficulty=0,
            max_page_items=1,
            level="test",
            server_version="forged",
            hub_log_origin=self.origin,
        )
        return self._answer(request, status.encode())

    async def _checkpoint(self, request: web.Request) -> web.Response:
        if not self.history.entries and self.shown is None:
            return _refused("there is no hub checkpoint")
        return self._answer(request, self.newest().encode(), "text/plain")

    async def _tile(self, request: web.Request) -> web.Response:
        tile = parse_path(request.match_info["path"])
        log = self.history.log
        if not tile.exists_at(log.size):
            return _refused("there is no such tile")
        return self._answer(request, self._content(tile), "application/octet-stream")

    def _content(self, tile: Tile) -> bytes:
        end = tile.start + tile.width
        if tile.level == ENTRIES:
            return encode_bundle(self.history.entries[tile.start : end])
        return b"".join(self.history.log.nodes[tile.height, index] for index in range(tile.start, end))

    def _named(self, wanted: Label) -> Nodes | None:
        found = [nodes for name, nodes in self.history.labels.items() if label(name) == wanted]
        return found[0] if found else None

    async def _consistency(self, request: web.Request) -> web.Response:
        asked = ConsistencyRequest.decode(await request.read())
        nodes = self._named(asked.label)
        if nodes is None or asked.to_seq > nodes.size:
            return _refused("there is no such entry")
        proof = prove_consistency(nodes.look_up, asked.from_seq, asked.to_seq)
        return self._answer(request, ConsistencyResponse(mmr_consistency=proof).encode())

    async def _receipt(self, request: web.Request) -> web.Response:
        asked = ReceiptRequest.decode(await request.read())
        names = [name for name in self.history.labels if label(name) == asked.label]
        if not names or asked.stream_seq > self.history.labels[names[0]].size:
            return _refused("there is no such entry")
        receipt = self.history.receipt(names[0], asked.stream_seq, self.key)
        return self._answer(request, ReceiptResponse(receipt=receipt).encode())


class ForgedWitnessServer(Served):
    """A witness's monitoring endpoints, with any answers."""

    def __init__(self, witness: ForgedWitness) -> None:
        super().__init__()
        self.witness = witness
        self.newest: SignedHead | None = None
        self.logs: bytes | None = None
        self.contradictions: dict[str, bytes] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/checkpoint/{hash}", self._checkpoint),
            web.get("/logs", self._logs),
            web.get("/contradiction/{id}", self._contradiction),
        ]

    async def _checkpoint(self, request: web.Request) -> web.Response:
        known = self.newest
        if known is None or request.match_info["hash"] != sha256(known.head.origin.encode()).hexdigest():
            return web.Response(status=404)
        return web.Response(body=known.encode())

    async def _logs(self, _request: web.Request) -> web.Response:
        return web.Response(body=self.logs) if self.logs is not None else web.Response(status=404)

    async def _contradiction(self, request: web.Request) -> web.Response:
        return web.Response(body=self.contradictions[request.match_info["id"]])
