"""The hub checkpoints that a client accepts: signed, cosigned by a quorum, each extending the last (P1, P2).

The largest hub checkpoint that was ever accepted is a record in the state store. Each one that the hub shows
later must be an extension of it, by a consistency proof. A smaller one, or one without a valid proof, is a
contradiction: both notes are saved as evidence, and ``Diverged`` is raised.

A hub checkpoint that has no quorum yet is not accepted. The missing quorum is an error only once the newest
accepted hub checkpoint is older than the policy's max_age.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from veen_core import hub_log
from veen_core.errors import (
    ConfigError,
    DecodeError,
    DivergenceError,
    ProofError,
    QuorumError,
    SignatureError,
    StateError,
)
from veen_core.hub_log import HubProofResponse
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.tlog import tree
from veen_core.tlog.note import NoteKey
from veen_core.tlog.policy import (
    MAX_POLICY_BYTES,
    NONE,
    POLICY_ACTION,
    Cosigned,
    WitnessPolicy,
    parse_policy,
)
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_hub.client.atomic_files import expand_user
from veen_hub.client.errors import BadRequest, Diverged, Misbehaved, NotFound
from veen_hub.client.hub_log.forks import find_hub_log_fork
from veen_hub.client.label.evidence import save_evidence
from veen_hub.client.state.records import HubCheckpointRecord, decode_record
from veen_hub.client.state.store import update
from veen_hub.client.wire.connection import HubConnection
from veen_hub.client.wire.endpoints import parse_hub_checkpoint

T = TypeVar("T")
RECORD: Final = "hublog/checkpoint"
"""The record with the largest hub checkpoint that was accepted."""
MAX_CONFLICTS: Final = 8
"""How often another process may accept a hub checkpoint while this one asks for the newest."""
ASK_OPERATOR: Final = "ask the hub's operator whether its witnesses run (`veen witness status`)"


def load_policy(given: WitnessPolicy | Path | str) -> WitnessPolicy:
    """Return a policy, read from its file if a path is given."""
    if isinstance(given, WitnessPolicy):
        return given
    path = expand_user(given)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_POLICY_BYTES + 1)
        return parse_policy(content)
    except OSError as exc:
        raise ConfigError(
            f"{path}: the witness policy cannot be read: {exc.strerror}",
            action="check --witnesses, VEEN_WITNESSES and the context",
        ) from None
    except DecodeError as exc:
        raise ConfigError(f"{path}: {exc}", action=POLICY_ACTION) from None


@dataclass(frozen=True, slots=True)
class AcceptedCheckpoint:
    """A hub checkpoint, and the witnesses that cosigned it."""

    signed: SignedHead
    cosigned: Cosigned

    @property
    def size(self) -> int:
        return self.signed.head.size

    @property
    def rank(self) -> tuple[int, int]:
        """Size, then time of the quorum: the larger one is the newer one."""
        return self.size, self.cosigned.quorum_at or 0


class _Conflict(Exception):  # noqa: N818 - never leaves this module
    """Another process has accepted another hub checkpoint meanwhile."""


class HubCheckpoints:
    """The accepted hub checkpoints of one connection, under one policy."""

    def __init__(self, connection: HubConnection, policy: WitnessPolicy) -> None:
        self.policy = policy
        self.newest: AcceptedCheckpoint | None = None
        """The newest accepted one; everything in its tree is confirmed."""
        self.missing = ""
        """Why the hub's newest checkpoint is not accepted; empty if it is, or if there is none."""
        self._connection = connection
        self._lock = asyncio.Lock()

    # --- asking

    async def refresh(self) -> None:
        """Fetch the published hub checkpoint; accept it if a quorum has cosigned it."""
        api = self._connection.api

        async def ask() -> tuple[SignedHead | None, None]:
            return await self._connection.ask(api.hub_checkpoint), None

        await self._asking(ask)

    async def proof(self, label: Label, stream_seq: StreamSeq | None = None) -> HubProofResponse:
        """Return a label's head and its place in the hub log, verified; accept the proof's hub checkpoint.

        Raises ``NotFound`` if the published hub checkpoint does not cover ``stream_seq`` yet.
        """
        api = self._connection.api

        async def ask() -> tuple[SignedHead, HubProofResponse]:
            found = await self._connection.ask(lambda: api.hub_proof(label, stream_seq))
            return verify_head_inclusion(found), found

        return await self._asking(ask)

    async def _asking(self, ask: Callable[[], Awaitable[tuple[SignedHead | None, T]]]) -> T:
        """Ask for a hub checkpoint and accept it. It must not be smaller than the one held before asking."""
        bound = self._decode(await self._load())
        shown, answer = await ask()
        async with self._lock:
            for _ in range(MAX_CONFLICTS):
                try:
                    await self._accept(shown, bound)
                except _Conflict:
                    continue
                return answer
        raise StateError(
            f"other processes changed the record {RECORD} {MAX_CONFLICTS} times in a row",
            action="give this client a state folder of its own",
        )

    # --- accepting

    async def _accept(self, shown: SignedHead | None, bound: SignedHead | None) -> None:
        if shown is None:
            if bound is not None:
                raise await self._diverged("the hub says that it has no hub checkpoint", bound, None)
            return
        await self._verify_signature(shown)
        if bound is not None and shown.head.size < bound.head.size:
            raise await self._diverged(
                f"the hub shows a hub log of {shown.head.size} entries, and showed {bound.head.size} before",
                bound,
                shown,
            )
        content = await self._load()
        held = self._decode(content)
        if held is None and self.newest is not None:  # the record was removed meanwhile
            held = self.newest.signed
        if held is not None:
            await self._verify_consistent(held, shown)
        accepted: AcceptedCheckpoint | None
        try:
            accepted = AcceptedCheckpoint(shown, self.policy.check(shown, log_keys=self._keys()))
        except QuorumError as exc:
            self.missing = exc.message
            accepted = self._by_policy(held)
        else:
            self.missing = ""
            if held is None or shown.head.size > held.head.size:
                await self._connection.workers.run(self._save, shown, content)
        if accepted is not None and (self.newest is None or self.newest.rank < accepted.rank):
            self.newest = accepted

    def _by_policy(self, held: SignedHead | None) -> AcceptedCheckpoint | None:
        """Return the stored hub checkpoint if it fulfils the policy, which may have changed since."""
        try:
            return AcceptedCheckpoint(held, self.policy.check(held, log_keys=self._keys())) if held else None
        except (QuorumError, SignatureError):
            return None

    async def _verify_signature(self, shown: SignedHead) -> None:
        """Verify the hub's signature; the hub may have gained a key (core §8.4)."""
        if shown.head.origin != self.origin:
            raise SignatureError(
                f"the hub log is called {shown.head.origin[:100]!r}, expected is {self.origin!r} (P1)",
                action="if the hub's operator chose that name, add the line that `veen hub keys --note` "
                "prints to the witness policy, after the word `log`",
            )
        try:
            hub_log.verify_hub_checkpoint(self._connection.status.identity, shown, origin=self.origin)
        except SignatureError:
            await self._connection.refresh()
            hub_log.verify_hub_checkpoint(self._connection.status.identity, shown, origin=self.origin)

    async def _verify_consistent(self, held: SignedHead, shown: SignedHead) -> None:
        """Raise ``Diverged`` unless one of the two trees is the start of the other (RFC 6962 §2.1.2)."""
        if shown.head.origin != held.head.origin:
            raise StateError(
                f"the record {RECORD} is of the log {held.head.origin!r}, not {shown.head.origin!r}",
                action=f"if the operator renamed the hub log, remove {RECORD}.state from the state folder",
            )
        old, new = sorted((held.head, shown.head), key=lambda head: head.size)
        if new.size == old.size:
            if new.root != old.root:
                raise await self._diverged(f"the hub signed two hub logs of {new.size} entries", held, shown)
            return
        for last in (False, True):  # two attempts: a proof is not signed, so a proxy may have damaged it
            try:
                await self._prove(old, new)
            except (ProofError, NotFound, BadRequest, Misbehaved) as exc:
                if last:
                    raise await self._diverged(
                        f"the hub log of {new.size} entries does not extend the one of {old.size}: "
                        f"{exc.message}",
                        held,
                        shown,
                    ) from exc
            else:
                return

    async def _prove(self, old: TreeHead, new: TreeHead) -> None:
        api = self._connection.api
        found = await self._connection.ask(lambda: api.hub_consistency(old.size, new.size))
        tree.verify_consistency(old.size, new.size, found.proof, old.root, new.root)

    async def _diverged(self, message: str, held: SignedHead, shown: SignedHead | None) -> Diverged:
        found = DivergenceError(
            f"{message} (RESOLUTIONS P1)",
            held=held.encode(),
            shown=shown.encode() if shown is not None else b"",
        )
        fork = None
        if shown is not None:
            identity, fetch = self._connection.status.identity, self._connection.api.log_file
            fork = await find_hub_log_fork(identity, held, shown, fetch)
        return await save_evidence(self._connection, found, fork=fork, suffix="note")

    # --- keys and names

    @property
    def origin(self) -> str:
        """The name of the hub's log: the one that the policy gives it, else P1's."""
        identity = self._connection.status.identity
        keys = {key.hub_pk for key in identity.hub_keys}
        if not self.policy.logs:
            return hub_log.origin_of(identity.hub_id)
        for log in self.policy.logs:
            if log.key.public in keys:
                return log.key.name
        line = hub_log.note_key(identity.hub_keys[-1], hub_log.origin_of(identity.hub_id)).text
        raise SignatureError(
            f"the witness policy does not name the log of hub {identity.hub_id.hex()} (C2SP tlog-policy)",
            action=f"add the line `log {line}`, which `veen hub keys --note` prints",
        )

    def _keys(self) -> list[NoteKey]:
        return hub_log.note_keys(self._connection.status.identity, self.origin)

    # --- age

    @property
    def is_stale(self) -> bool:
        """Whether the quorum of the newest accepted hub checkpoint is too old, by this machine's clock."""
        try:
            self._check_newest()
        except QuorumError:
            return True
        return False

    def check_age(self, entry_ts: UnixTime | None = None) -> None:
        """Raise ``QuorumError`` if no hub checkpoint has a quorum, or if the newest quorum is too old.

        ``entry_ts`` is the time of an entry that was read. A hub without any hub checkpoint passes while this
        entry is younger than the policy's max_age.
        """
        if self.newest is None and self.missing:
            raise QuorumError(self.missing, action=ASK_OPERATOR)
        if self.newest is None and entry_ts is not None:
            self._check_denial(entry_ts)
        try:
            self._check_newest()
        except QuorumError as exc:
            why = f"; {self.missing}" if self.missing else ""
            action = f"{ASK_OPERATOR}, and check this machine's clock"
            raise QuorumError(f"{exc.message}{why}", action=action) from None

    def _check_denial(self, entry_ts: UnixTime) -> None:
        age = int(time.time()) - entry_ts
        if self.policy.quorum != NONE and age > self.policy.max_age_sec:
            raise QuorumError(
                f"the hub says that it has no hub checkpoint, but an entry that it shows is {age} s old, at "
                f"most {self.policy.max_age_sec} s are allowed (#veen max-age of the policy)",
                action=ASK_OPERATOR,
            )

    def _check_newest(self) -> None:
        if self.newest is not None:
            self.policy.check_age(self.newest.cosigned, UnixTime(int(time.time())))

    # --- the record

    async def _load(self) -> bytes | None:
        connection = self._connection
        return await connection.workers.run(connection.store.load, connection.hub_id, RECORD)

    @staticmethod
    def _decode(content: bytes | None) -> SignedHead | None:
        if content is None:
            return None
        return decode_record(HubCheckpointRecord, content, RECORD).signed_head

    def _save(self, shown: SignedHead, before: bytes | None) -> None:
        """Replace the record, unless another process has replaced it since it was read."""

        def change(content: bytes | None) -> bytes:
            if content != before:
                raise _Conflict
            return HubCheckpointRecord(checkpoint=shown.encode()).encode()

        connection = self._connection
        update(connection.store, connection.hub_id, RECORD, change, lock_timeout=connection.lock_timeout)


def verify_head_inclusion(found: HubProofResponse) -> SignedHead:
    """Verify that a label's head is under the hub checkpoint of its proof, and return that checkpoint (P1).

    Its signatures are not verified.
    """
    signed = parse_hub_checkpoint(found.checkpoint)
    leaf = tree.leaf_hash(found.head.encode())
    tree.verify_inclusion(leaf, found.index, signed.head.size, found.proof, signed.head.root)
    return signed
