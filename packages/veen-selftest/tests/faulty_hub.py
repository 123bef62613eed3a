"""The real hub with one fault at a time.

    python faulty_hub.py --fault-file=FILE … and the options of veen-hub

FILE names the active fault, or is empty: one process can have each fault in turn, and none in between.
``FAULTS`` lists the faults; ``skip ROW`` skips that row of the admission table. When such a hub ends, a power
loss is simulated: data that was never synced is lost.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cbor2

from veen_core import ciphertext, rejection
from veen_core import receipt as receipts
from veen_core.checkpoint import sign_checkpoint
from veen_core.errors import AdmissionError, ApiError, VeenError
from veen_core.hashing import H
from veen_core.ids import MmrRoot, NodeHash, Signature, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.rejection import Code
from veen_hub import hub as hubs
from veen_hub import main
from veen_hub.admission import authorization, stateless, table
from veen_hub.admission.authorization import Authorization
from veen_hub.admission.labels import LabelMap
from veen_hub.admission.replay_guard import AdminReplayGuard
from veen_hub.api import attachments, content, errors, hub_log, reading, replication, routes, submit, tooling
from veen_hub.api.reply import Headers, Reply
from veen_hub.api.request import ApiRequest
from veen_hub.api.submit import SubmitCall
from veen_hub.http import errors as http_errors
from veen_hub.http.connections import Connection
from veen_hub.ops.hub_log.service import HubLogService
from veen_hub.ops.hub_log.witness_link import ANSWER_SEC, WitnessLink
from veen_hub.ops.hub_log.witnessing import Witnessing
from veen_hub.ops.metrics import Metrics
from veen_hub.pipeline import feed
from veen_hub.pipeline.feed import Feed
from veen_hub.pipeline.signing_gate import SigningGate
from veen_hub.replica.items import HandoverItem
from veen_selftest.hubs.http_hub import SECOND_ADDRESS
from veen_storage import AbsentError
from veen_storage.chunks.chunk_origin_check import OriginCheck
from veen_storage.commit.ledger import Draft
from veen_storage.commit.writer import Batch
from veen_storage.disk.files import Files
from veen_storage.disk.hub_keys import HubKeys
from veen_storage.read.hub_log import StoredHubLog
from veen_storage.read.reader import Reader
from veen_storage.store import Store

if __package__:
    from .altered_log import Alteration, AlteredLog, RollBack, drop_labels, fork, read_entries
else:  # started as a program
    from altered_log import Alteration, AlteredLog, RollBack, drop_labels, fork, read_entries

SKIPPED = "skip "
BACKUP = "starts from a backup"
STRANGER = SigningKey(SigningSeed(H(b"a stranger's key")))

Fault = Callable[[], None]
FAULTS: dict[str, Fault] = {}
"""Faults by name; each patches the hub at start and takes effect only while it is active."""


class Switch:
    """Tells which fault is active now."""

    file: Path | None = None

    def __call__(self, name: str) -> bool:
        return self.file is not None and self.file.read_text(encoding="utf-8") == name


active = Switch()


def fault(name: str) -> Callable[[Fault], Fault]:
    def declare(install: Fault) -> Fault:
        FAULTS[name] = install
        return install

    return declare


def while_active(name: str, owner: Any, attribute: str, wrong: Callable[..., Any]) -> None:
    """Replace ``owner.attribute`` by ``wrong(right, *arguments)`` while the fault is active."""
    right = getattr(owner, attribute)

    @wraps(right)
    def either(*arguments: Any, **named: Any) -> Any:
        return wrong(right, *arguments, **named) if active(name) else right(*arguments, **named)

    setattr(owner, attribute, either)


SIGNING: list[HubKeys] = []
"""The hub's keys, once it has loaded them."""


def keep_keys() -> None:
    """Keep the hub's keys, so that a fault can sign with them."""
    right = HubKeys.__init__

    def init(self: HubKeys, *about: Any, **named: Any) -> None:
        right(self, *about, **named)
        SIGNING.append(self)

    HubKeys.__init__ = init  # type: ignore[method-assign]


# --- the admission table


@fault("skips rows")
def _rows() -> None:
    """Implements ``skip ROW`` for every row of the table."""

    def skip_stateless(row: rejection.Rejection, holds: Callable[..., bool]) -> Callable[..., bool]:
        return lambda *about: _left_out(row) or holds(*about)

    def skip_stateful(row: rejection.Rejection, failure: Callable[..., Any]) -> Callable[..., Any]:
        return lambda standing: None if _left_out(row) else failure(standing)

    stateless.STATELESS = tuple((row, skip_stateless(row, holds)) for row, holds in stateless.STATELESS)
    table.STATEFUL = tuple((row, skip_stateful(row, failure)) for row, failure in table.STATEFUL)
    table.AUTH_ROWS = tuple(row for row in table.STATEFUL if row[0].stage is rejection.Stage.AUTH)
    table.MESSAGE_ROWS = tuple(row for row in table.STATEFUL if row[0] not in table.WRITER_ROWS)


def _left_out(row: rejection.Rejection) -> bool:
    if active("accepts replays"):
        return row in (rejection.DUPLICATE, rejection.CLIENT_SEQ)
    return active(SKIPPED + row.detail)


@fault("accepts replays")
def _replays() -> None:
    """See ``_left_out``."""


@fault("judges in another order")
def _order() -> None:
    while_active("judges in another order", table, "_check", lambda right, rows, at: right(rows[::-1], at))


@fault("takes any encoding")
def _encoding() -> None:
    def any_(_right: Any, envelope: bytes) -> bytes:
        return cbor2.dumps(cbor2.loads(envelope)[2])

    while_active("takes any encoding", submit, "unwrap_submit", any_)


@fault("takes any layout")
def _layout() -> None:
    while_active("takes any layout", ciphertext, "check_layout", lambda _right, *_about: (0, 0))


@fault("takes any version")
def _msg_version() -> None:
    def first(right: Any, wire: bytes, limits: Any) -> Any:
        return right(b"\x8a\x01" + wire[2:], limits)

    while_active("takes any version", stateless, "_decode", first)


@fault("calls its caps a field")
def _caps() -> None:
    def field(_right: Any, message: str) -> AdmissionError:
        return AdmissionError(rejection.FIELD_SIZE, message)

    while_active("calls its caps a field", submit, "over_the_cap", field)


@fault("asks for no work")
def _work() -> None:
    def unworked(_right: Any, call: SubmitCall) -> list[Any]:
        return call._items

    while_active("asks for no work", SubmitCall, "_check_work", unworked)


@fault("takes any token")
def _tokens() -> None:
    while_active("takes any token", authorization, "verify_token", lambda _right, *_about: None)


@fault("takes any issuer")
def _issuers() -> None:
    class Anybody(frozenset[bytes]):
        def __contains__(self, key: object) -> bool:
            return active("takes any issuer") or super().__contains__(key)

    right = table.AdmissionSettings.__init__

    def rules(self: table.AdmissionSettings, *, issuers: frozenset[bytes], **others: Any) -> None:
        right(self, issuers=Anybody(issuers), **others)

    table.AdmissionSettings.__init__ = rules  # type: ignore[method-assign, assignment]


@fault("gives tokens longer")
def _ttl() -> None:
    async def longer(right: Any, self: Authorization, token: bytes) -> Any:
        given = await right(self, token)
        return dataclasses.replace(given, expires_at=given.expires_at + 60)

    while_active("gives tokens longer", Authorization, "authorize", longer)


@fault("reports another code")
def _code() -> None:
    def other(right: Any, error: AdmissionError | ApiError, *about: Any) -> Any:
        made = right(error, *about)
        return dataclasses.replace(made, code=Code.CONFLICT) if made.code is Code.SEQ else made

    for module in (errors, submit):
        while_active("reports another code", module, "envelope_of", other)


@fault("reports another status")
def _status() -> None:
    class Statuses(dict[Code, int]):
        def __getitem__(self, code: Code) -> int:
            return 400 if active("reports another status") else super().__getitem__(code)

    errors.HTTP_STATUS = Statuses(errors.HTTP_STATUS)


@fault("names no request")
def _request_id() -> None:
    while_active(
        "names no request", errors, "envelope_of", lambda right, error, _named=None: right(error, None)
    )


# --- receipts, order, history


@fault("forges a root")
def _root() -> None:
    def forged(right: Any, label: Any, seq: int, leaf: Any, *rest: Any) -> Any:
        root, hub_ts = rest
        return right(label, seq, leaf, MmrRoot(H(root)) if seq % 4 == 3 else root, hub_ts)

    while_active("forges a root", receipts, "unsigned_bytes", forged)


@fault("commits to another leaf")
def _leaf() -> None:
    def other(right: Any, self: Batch, msg: Any, wire: bytes, leaf: bytes) -> Any:
        return right(self, msg, wire, H(leaf))

    while_active("commits to another leaf", Batch, "add", other)


@fault("signs with another key")
def _key() -> None:
    while_active(
        "signs with another key",
        HubKeys,
        "sign_receipts",
        lambda _right, _self, digests, _now: [STRANGER.sign(digest) for digest in digests],
    )
    while_active(
        "signs with another key", OriginCheck, "_check_signed", lambda *_: None
    )  # nor does it notice


@fault("turns its clock back")
def _clock() -> None:
    back = itertools.count(1)

    def earlier(right: Any, self: Batch, *about: Any) -> None:
        right(self, *about)
        self.hub_ts = UnixTime(self.hub_ts - next(back) % 2)

    while_active("turns its clock back", Batch, "__init__", earlier)


@fault("reorders pages")
def _pages() -> None:
    def backwards(right: Any, *about: Any, **options: Any) -> Any:
        return list(right(*about, **options))[::-1]

    while_active("reorders pages", reading, "encode_items", backwards)


@fault("leaves out the last entry")
def _short_pages() -> None:
    def shorter(right: Any, *about: Any) -> Any:
        page = right(*about)
        return dataclasses.replace(page, contents=page.contents[:-1])

    while_active("leaves out the last entry", reading, "read_page", shorter)


@fault("equivocates")
def _equivocation() -> None:
    """Signs two different receipts for one stream_seq."""

    def other(right: Any, self: Reader, label: Any, seq: Any) -> Any:
        held = right(self, label, seq)
        unsigned = dataclasses.replace(held, leaf_hash=type(held.leaf_hash)(H(held.leaf_hash)))
        signer = next(iter(SIGNING[-1].secrets.values()))
        return receipts.sign_receipt(signer, unsigned)

    while_active("equivocates", Reader, "receipt", other)


@fault("gives a place twice")
def _places() -> None:
    """Answers with a receipt whose stream_seq belongs to another message."""

    def before(right: Any, outcome: Any, request_id: str) -> bytes:
        if hasattr(outcome, "receipt") and outcome.receipt.stream_seq > 1:
            held = outcome.receipt
            outcome = _Shown(dataclasses.replace(held, stream_seq=held.stream_seq - 1).encode())
        made: bytes = right(outcome, request_id)
        return made

    while_active("gives a place twice", submit, "encode", before)


@dataclasses.dataclass
class _Shown:
    receipt_bytes: bytes


@fault("tells followers twice")
def _follow() -> None:
    def twice(right: Any, *about: Any) -> Any:
        found = right(*about)
        return (found[0] * 2, found[1]) if found is not None else None

    while_active("tells followers twice", feed._Followed, "delivery", twice)


# --- proofs and checkpoints


@fault("forges a proof")
def _proof() -> None:
    def forged(right: Any, *about: Any) -> Any:
        made = right(*about)
        return dataclasses.replace(made, peaks_after=(*made.peaks_after, NodeHash(bytes(32))))

    while_active("forges a proof", Reader, "proof", forged)


@fault("proves at length")
def _long_proof() -> None:
    """Proves against a tree of another size than was asked for."""

    def longer(right: Any, self: Reader, label: Any, seq: Any, tree_size: Any = None) -> Any:
        del tree_size
        return right(self, label, seq, None)

    while_active("proves at length", Reader, "proof", longer)


@fault("proves what is not there")
def _absent_proof() -> None:
    def anything(right: Any, self: Reader, label: Any, seq: int, *others: Any) -> Any:
        try:
            return right(self, label, seq, *others)
        except VeenError:
            return right(self, label, *((1, 2) if right.__name__ == "consistency" else (1,)))

    for name in ("proof", "consistency"):
        while_active("proves what is not there", Reader, name, anything)


@fault("forges a consistency proof")
def _consistency() -> None:
    def forged(right: Any, *about: Any) -> Any:
        made = right(*about)
        return dataclasses.replace(made, path=tuple(NodeHash(H(node)) for node in made.path))

    while_active("forges a consistency proof", Reader, "consistency", forged)


@fault("forges a checkpoint")
def _checkpoint() -> None:
    def forged(_right: Any, self: HubKeys, unsigned: Any, _now: Any) -> Any:
        signer = next(iter(self.secrets.values()))
        return sign_checkpoint(signer, dataclasses.replace(unsigned, mmr_root=MmrRoot(H(unsigned.mmr_root))))

    while_active("forges a checkpoint", HubKeys, "sign_checkpoint", forged)


@fault("rewrites its checkpoints")
def _rewrites() -> None:
    def other(right: Any, *about: Any) -> Any:
        made = right(*about)
        return dataclasses.replace(made, label_prev=type(made.label_prev)(H(made.label_prev)))

    while_active("rewrites its checkpoints", Reader, "checkpoint", other)


@fault("lists no checkpoint")
def _unlisted() -> None:
    while_active("lists no checkpoint", Reader, "checkpoints_by_epoch", lambda _right, *_about: [])


@fault("witnesses with one key")
def _witnesses() -> None:
    def alone(right: Any, *about: Any) -> Any:
        return dataclasses.replace(right(*about), witness_sigs=None)

    while_active("witnesses with one key", HubKeys, "sign_checkpoint", alone)


@fault("breaks the chain of epochs")
def _epochs() -> None:
    while_active("breaks the chain of epochs", LabelMap, "previous", lambda _right, _self, _label: None)


@fault("lives in another epoch")
def _other_epoch() -> None:
    def later(right: Any, self: hubs.Hub) -> Any:
        found = right(self)
        return dataclasses.replace(found, epoch=found.epoch + 1)

    while_active("lives in another epoch", hubs.Hub, "status", later)


@fault("obeys anybody")
def _orders() -> None:
    while_active("obeys anybody", tooling, "verify", lambda _right, *_about: None)


@fault("obeys twice")
def _replayed() -> None:
    while_active("obeys twice", AdminReplayGuard, "is_replay", lambda _right, *_about: False)


# --- the hub log, its witnesses and memories


class _AlteredStore:
    """The store of a hub, with another hub log."""

    def __init__(self, store: Store, hub_log: AlteredLog) -> None:
        self._store = store
        self.hub_log = hub_log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _AlteredHub:
    """A hub for one request, with another hub log."""

    def __init__(self, hub: hubs.Hub, hub_log: AlteredLog) -> None:
        self._hub = hub
        self.store = _AlteredStore(hub.store, hub_log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hub, name)


def shows_another_log(
    name: str, alteration: Callable[[], Alteration], to: Callable[[ApiRequest], bool] = lambda _request: True
) -> None:
    """Answer requests about the hub log from altered entries, signed by the hub."""
    right, current = routes.call, list[Alteration]()

    def either(request: ApiRequest) -> Any:
        hub: Any = request.hub
        if not active(name):
            current.clear()
            return hub
        if not current:
            current.append(alteration())
        signed = hub.store.hub_log.published
        if signed is None or not to(request):
            return hub
        entries = current[0](read_entries(hub.store.hub_log, signed.head.size))
        keys = SIGNING[-1]
        sign = lambda text, origin: keys.sign_note(text, origin, hub.hub_ts)  # noqa: E731 - short
        return _AlteredHub(hub, AlteredLog(signed.head.origin, entries, sign))

    async def called(route: routes.Route, request: ApiRequest) -> Any:
        if route.handler.__module__ == hub_log.__name__:
            request = dataclasses.replace(request, hub=either(request))
        return await right(route, request)

    routes.call = called  # type: ignore[assignment]


@fault("forks the hub log per client")
def _fork_log() -> None:
    """Shows another history to the client with the second address."""
    shows_another_log(
        "forks the hub log per client", lambda: fork, lambda request: request.remote == SECOND_ADDRESS
    )


@fault("rolls the hub log back")
def _roll_back() -> None:
    shows_another_log("rolls the hub log back", RollBack)


@fault("drops a label from the hub log")
def _drop_label() -> None:
    shows_another_log("drops a label from the hub log", lambda: drop_labels)


@fault("extends the hub log in reverse")
def _reverse_log() -> None:
    """The order is stored, so that this hub could not be started again."""
    while_active("extends the hub log in reverse", Draft, "moved", lambda right, self: right(self)[::-1])


@fault("writes roots in hex")
def _hex_roots() -> None:
    def in_hex(right: Any, hub: hubs.Hub) -> Any:
        head = right(hub).head
        text = f"{head.origin}\n{head.size}\n{head.root.hex()}\n"
        return SIGNING[-1].sign_note(text, head.origin, hub.hub_ts)

    while_active("writes roots in hex", hub_log, "published", in_hex)


@fault("serves tiles of another tree")
def _other_tiles() -> None:
    def other(right: Any, self: StoredHubLog, tile: Any) -> bytes:
        data = right(self, tile)
        return b"".join(H(data[at : at + 32]) for at in range(0, len(data), 32))

    while_active("serves tiles of another tree", StoredHubLog, "tile", other)


@fault("lets nobody keep tiles")
def _uncached_tiles() -> None:
    while_active("lets nobody keep tiles", hub_log, "_sharing", lambda _right, _hub: "no-store")


@fault("serves tiles that are not there")
def _absent_tiles() -> None:
    def empty(right: Any, *about: Any) -> bytes:
        try:
            found: bytes = right(*about)
        except ApiError:
            return b""
        return found

    while_active("serves tiles that are not there", hub_log, "read_tile", empty)


@fault("is late with its hub checkpoints")
def _late_hub_checkpoints() -> None:
    async def nothing(_right: Any, _self: HubLogService) -> None:
        pass

    while_active("is late with its hub checkpoints", HubLogService, "_tick", nothing)


@fault("forges hub log proofs")
def _hub_log_proofs() -> None:
    def forged(right: Any, *about: Any) -> list[bytes]:
        return [H(node) for node in right(*about)]

    for name in ("prove_inclusion", "prove_consistency"):
        while_active("forges hub log proofs", StoredHubLog, name, forged)


@fault("proves heads of no label")
def _any_head() -> None:
    def any_(right: Any, self: StoredHubLog, label: Any, *about: Any) -> Any:
        try:
            return right(self, label, *about)
        except AbsentError:
            return right(self, next(self.heads()).label)

    while_active("proves heads of no label", StoredHubLog, "head_of", any_)


@fault("makes no last hub checkpoint")
def _no_last_checkpoint() -> None:
    async def without(_right: Any, self: HubLogService) -> None:
        await self._witnessing.drain()

    while_active("makes no last hub checkpoint", HubLogService, "drain", without)


@fault("signs hub checkpoints with one key")
def _one_note_key() -> None:
    def first(right: Any, *about: Any) -> Any:
        made = right(*about)
        return dataclasses.replace(made, signatures=made.signatures[:1])

    while_active("signs hub checkpoints with one key", HubKeys, "sign_note", first)


@fault("serves no cosignature")
def _no_cosignature() -> None:
    def bare(right: Any, hub: hubs.Hub) -> Any:
        signed = right(hub)
        own = tuple(line for line in signed.note.signatures if line.name == signed.head.origin)
        return dataclasses.replace(signed, note=dataclasses.replace(signed.note, signatures=own))

    while_active("serves no cosignature", hub_log, "published", bare)


@fault("renews no cosignature")
def _not_renewed() -> None:
    while_active("renews no cosignature", Witnessing, "_pause_sec", lambda _right, _self: None)


@fault("waits for its witnesses")
def _waits() -> None:
    """A commit waits until no witness is asked, for as long as the hub waits for an answer."""
    asking = threading.Event()

    async def asked(right: Any, *about: Any) -> Any:
        asking.set()
        try:
            return await right(*about)
        finally:
            asking.clear()

    def later(right: Any, *about: Any) -> None:
        deadline = time.monotonic() + ANSWER_SEC
        while asking.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        right(*about)

    while_active("waits for its witnesses", WitnessLink, "cosign", asked)
    while_active("waits for its witnesses", Store, "commit", later)


@fault("asks no memory")
def _no_memory() -> None:
    """Signs whatever its memories say."""
    closed = SigningGate.closed
    assert isinstance(closed, property)
    SigningGate.closed = property(  # type: ignore[method-assign, assignment]
        lambda self: None if active("asks no memory") else closed.__get__(self)
    )
    while_active("asks no memory", SigningGate, "check", lambda _right, _self: None)


# --- replica and handover


@fault("forgets what its primary sends")
def _forgetful_replica() -> None:
    """A replica stores nothing but its first copy."""
    nothing = SimpleNamespace(entries=[])
    while_active("forgets what its primary sends", Store, "replicate", lambda _right, *_about: nothing)


@fault("calls a replica revoked")
def _revoked_replica() -> None:
    def revoked(right: Any, self: SigningGate) -> None:
        if self.is_elsewhere:
            raise AdmissionError(rejection.REVOKED, "not here")
        right(self)

    while_active("calls a replica revoked", SigningGate, "check", revoked)


@fault("accepts messages after its handover")
def _open_after_handover() -> None:
    """The gate opens again once the record is sent to the replica, which could otherwise not record it."""
    name, gates = "accepts messages after its handover", list[SigningGate]()

    def close_for_a_while(right: Any, self: SigningGate, why: str) -> None:
        if "replica" in why:
            right(self, why)
        else:
            self.wait(why, why)
            gates.append(self)

    def encoded(right: Any, item: Any) -> Any:
        if isinstance(item, HandoverItem):
            gates[-1].open()
        return right(item)

    while_active(name, SigningGate, "write_elsewhere", close_for_a_while)
    while_active(name, replication, "encode_item", encoded)


# --- everything else


@fault("opens its control label")
def _control() -> None:
    def anywhere(right: Any, standing: Any) -> Any:
        return None if active("opens its control label") else right(standing)

    table.STATEFUL = tuple(
        (row, partial(anywhere, failure) if row is rejection.CAP_SCOPE else failure)
        for row, failure in table.STATEFUL
    )


@fault("stores no attachment")
def _attachments() -> None:
    async def nothing(_right: Any, request: ApiRequest, _coid: Any) -> tuple[bool, int]:
        async for _part in request.content.iter_any():
            pass
        return True, 0

    while_active("stores no attachment", attachments, "_store", nothing)


@fault("takes unsigned attachments")
def _unsigned_attachments() -> None:
    while_active("takes unsigned attachments", attachments, "verify", lambda _right, *_about: None)


@fault("measures no attachment")
def _attachment_size() -> None:
    def small(_right: Any, headers: Headers, *_about: Any) -> None:
        if headers.get("Content-Length", "0") != "0":
            raise ApiError(Code.BAD_REQUEST, "no room")

    while_active("measures no attachment", attachments, "check_length", small)


@fault("shows a broken identity")
def _identity() -> None:
    def broken(right: Any, self: hubs.Hub) -> Any:
        return dataclasses.replace(right(self), identity_sig=Signature(bytes(64)))

    while_active("shows a broken identity", hubs.Hub, "status", broken)


@fault("is of every version")
def _version() -> None:
    def absent(_right: Any, path: str) -> ApiError:
        return ApiError(Code.NOT_FOUND, f"there is no {path}")

    while_active("is of every version", http_errors, "no_such_path", absent)


@fault("overlooks odd requests")
def _odd_requests() -> None:
    async def lenient(right: Any, *about: Any) -> Any:
        body = await right(*about)
        try:
            found = cbor2.loads(body)
            return cbor2.dumps({key: found[key] for key in (1, 2, 3)})
        except (cbor2.CBORError, KeyError, TypeError):
            return body

    while_active("overlooks odd requests", content, "read_body", lenient)


@fault("says something else in JSON")
def _json() -> None:
    def other(right: Any, page: reading.Page, asked: Any) -> Any:
        return right(dataclasses.replace(page, contents=page.contents[1:]), asked)

    while_active("says something else in JSON", reading, "page_json", other)


@fault("believes any evidence")
def _evidence() -> None:
    while_active("believes any evidence", tooling, "verify_evidence", lambda _right, *_about: None)


@fault("counts nothing")
def _metrics() -> None:
    while_active("counts nothing", Metrics, "expose", lambda _right, _self: b"")


@fault("drops who comes after a bad one")
def _fragile() -> None:
    """Whatever is no request, or ends early, takes the next message with it; and so do many idlers."""
    name, owed, answered, live = "drops who comes after a bad one", [], set[int](), set[int]()

    def made(right: Any, self: Connection, transport: Any) -> None:
        live.add(id(self))
        right(self, transport)

    def written(right: Any, self: Connection, answer: bytes) -> None:
        answered.add(id(self))
        right(self, answer)

    def bad(right: Any, *about: Any, **named: Any) -> Any:
        owed.append(True)
        return right(*about, **named)

    async def finished(right: Any, self: Connection, *about: Any) -> Any:
        answered.add(id(self))
        return await right(self, *about)

    def lost(right: Any, self: Connection, exc: Any) -> None:
        if id(self) not in answered:
            owed.append(True)
        answered.discard(id(self))
        live.discard(id(self))
        right(self, exc)

    def served(right: Any, call: SubmitCall) -> Any:
        if owed or len(live) > 50:
            owed.clear()
            raise ApiError(Code.UNAVAILABLE, "somebody before you was rude")
        return right(call)

    while_active(name, Connection, "finish_response", finished)
    while_active(name, Connection, "connection_lost", lost)
    while_active(name, Connection, "handle_error", bad)
    while_active(name, submit, "over_the_cap", bad)
    while_active(name, SubmitCall, "check_head", served)
    while_active(name, Connection, "connection_made", made)
    while_active(name, Connection, "_write", written)


@fault("changes its mind")
def _fickle() -> None:
    """Depends on the request's number, which increases by one."""

    def fickle(right: Any, error: AdmissionError | ApiError, *about: Any) -> Any:
        made = right(error, *about)
        odd = made.request_id is not None and int(made.request_id, 16) % 2
        return dataclasses.replace(made, code=Code.CONFLICT) if odd else made

    for module in (errors, submit):
        while_active("changes its mind", module, "envelope_of", fickle)


@fault("answers 500")
def _server_error() -> None:
    def failing(right: Any, headers: Headers, error: Any, request_id: str) -> Any:
        code = error.rejection.code if isinstance(error, AdmissionError) else error.code
        if code in (Code.BAD_REQUEST, Code.FORMAT):
            return Reply(500, b"", content.CBOR)
        return right(headers, error, request_id)

    for module in (errors, submit):
        while_active("answers 500", module, "refuse", failing)


@fault("claims to enforce everything")
def _claims() -> None:
    def silent(right: Any, self: hubs.Hub) -> Any:
        return dataclasses.replace(right(self), cannot_enforce=())

    while_active("claims to enforce everything", hubs.Hub, "status", silent)


# --- figures


@fault("is slow")
def _slow() -> None:
    """Delays each commit, and more for larger batches."""

    def later(right: Any, self: Store, batch: Batch) -> None:
        time.sleep(0.02 + 0.000_5 * batch.length)  # at most 2,000 messages/s
        right(self, batch)

    while_active("is slow", Store, "commit", later)


@fault("slows as it grows")
def _growing() -> None:
    def later(right: Any, self: Batch, msg: Any, *about: Any) -> Any:
        placed = right(self, msg, *about)
        if self.length == 1 and self.label(msg.label).log.size > 1_900:
            time.sleep(0.01)
        return placed

    while_active("slows as it grows", Batch, "add", later)


@fault("reads slowly")
def _slow_reading() -> None:
    def later(right: Any, *about: Any) -> Any:
        time.sleep(0.1)
        return right(*about)

    while_active("reads slowly", reading, "read_page", later)


@fault("tells followers late")
def _late() -> None:
    def later(right: Any, self: Feed, entries: list[Any]) -> None:
        asyncio.get_running_loop().call_later(0.05, right, self, entries)

    while_active("tells followers late", Feed, "announce", later)


@fault("hoards memory")
def _hoards() -> None:
    hoard: list[bytes] = []

    def more(right: Any, *about: Any) -> None:
        if not hoard:
            hoard.append(b"\xff" * 420_000_000)
        right(*about)

    while_active("hoards memory", Store, "commit", more)


# --- the disk


@fault("drops fsync")
def _unsynced() -> None:
    """``PowerCut`` then reverts unsynced writes."""
    for name in ("sync", "sync_many", "sync_directory"):
        while_active("drops fsync", Files, name, lambda _right, *_about: None)


class PowerCut:
    """Simulates power loss: keeps the last synced content of each changed file, and restores it.

    A file's name is durable after a sync of its folder, its content after a sync of the file.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._held = root.with_name(f"{root.name}-unsynced")
        self._lock = threading.Lock()

    def happen(self) -> None:
        """Restore every file to its last synced content."""
        for old in self._held.rglob("*.old"):
            shutil.copyfile(old, self._root / old.relative_to(self._held).with_suffix(""))
        for new in self._held.rglob("*.new"):
            (self._root / new.relative_to(self._held).with_suffix("")).unlink(missing_ok=True)
        shutil.rmtree(self._held, ignore_errors=True)

    def watch(self) -> None:
        """Observe every change and every sync from now on."""
        self._before("write", lambda fd, *_: [_path_of(fd)])
        self._before("truncate", lambda fd, *_: [_path_of(fd)])
        self._before("rename", lambda source, target: [source, target])
        self._before("remove", lambda path: [path])
        self._after("sync", lambda fd: [_path_of(fd)])
        self._after("sync_directory", lambda path: [path / name.name for name in self._beside(path)])

    def _is_inside(self, path: Path) -> bool:
        """Return whether a file is in the data directory; a heads file is on another volume."""
        return path.resolve().is_relative_to(self._root)

    def _beside(self, path: Path) -> list[Path]:
        if not self._is_inside(path):
            return []
        folder = self._held / path.resolve().relative_to(self._root)
        return [held.with_suffix("") for held in folder.glob("*.???")]

    def _before(self, name: str, paths: Callable[..., list[Path]]) -> None:
        right = getattr(Files, name)

        def changing(files: Files, *about: Any) -> Any:
            with self._lock:
                for path in filter(self._is_inside, paths(*about)):
                    self._keep(path)
                return right(files, *about)

        setattr(Files, name, changing)

    def _after(self, name: str, paths: Callable[..., list[Path]]) -> None:
        """Below what ``drops fsync`` leaves out: it is put in place before."""
        right = getattr(Files, name)

        def syncing(files: Files, *about: Any) -> None:
            right(files, *about)
            with self._lock:
                for path in filter(self._is_inside, paths(*about)):
                    for held in (self._place(path, ".old"), self._place(path, ".new")):
                        held.unlink(missing_ok=True)

        setattr(Files, name, syncing)

    def _place(self, path: Path, suffix: str) -> Path:
        place = self._held / path.resolve().relative_to(self._root)
        return place.with_name(place.name + suffix)

    def _keep(self, path: Path) -> None:
        if path.is_dir():
            return  # the first copy of a replica ends with the rename of a folder, which is not restored
        old, new = self._place(path, ".old"), self._place(path, ".new")
        if old.exists() or new.exists():
            return
        old.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size:
            whole = old.with_suffix(".part")
            shutil.copyfile(path, whole)
            whole.rename(old)  # a kill during the copy must not leave a shorter file to restore
        else:
            new.touch()


def _from_backup(root: Path) -> None:
    """Copy the directory at every start; ``starts from a backup`` continues from the previous copy."""
    if not root.exists():
        return  # a replica that has no copy of its primary yet
    copy = root.with_name(f"{root.name}-backup")
    if copy.exists() and active(BACKUP):
        shutil.rmtree(root)
        shutil.copytree(copy, root)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)


def _path_of(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()


def _arguments(given: list[str]) -> Iterator[str]:
    for argument in given:
        if argument.startswith("--fault-file="):
            active.file = Path(argument.partition("=")[2])
        else:
            yield argument


def run(given: list[str]) -> int:
    arguments = list(_arguments(given))
    if not {"--init", "--rotate"} & set(arguments):
        root = next(Path(a.partition("=")[2]) for a in arguments if a.startswith("--data-dir="))
        machine = PowerCut(root)
        machine.happen()
        machine.watch()
        _from_backup(root)
    keep_keys()
    for install in FAULTS.values():
        install()
    return main.main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
