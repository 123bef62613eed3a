"""A witness as the monitor asks it: its newest cosigned checkpoint of a log, and contradictions it has found.

C2SP tlog-witness leaves open how a monitor asks a witness. The paths are those of ``veen witness serve``. A
witness that does not have them has nothing to compare.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, Protocol

import aiohttp

from veen_core.errors import DecodeError, SignatureError
from veen_core.tlog.note import MAX_NOTE_BYTES, verified_signatures
from veen_core.tlog.policy import PolicyWitness
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_hub.client.errors import Misbehaved, Unreachable
from veen_hub.client.wire.transport import Tls
from veen_hub.ops.hub_log.memory_sources import read_bounded
from veen_hub.witness.contradiction import LogContradiction

ANSWER_SEC: Final = 10.0
MAX_LIST_BYTES: Final = 1_048_576
MAX_CONTRADICTION_BYTES: Final = 4 * MAX_NOTE_BYTES
MAX_CONTRADICTIONS: Final = 8
"""Contradictions of one log that are fetched; a witness keeps no more of them."""


class WitnessSource(Protocol):
    """Requests to a witness; each raises ``Unreachable``, ``Misbehaved`` or ``SignatureError``."""

    async def newest(self, witness: PolicyWitness, origin: str) -> SignedHead | None:
        """Return the newest checkpoint that the witness says it has cosigned; None if it has none."""

    async def contradictions(self, witness: PolicyWitness, origin: str) -> list[SignedHead]:
        """Return the checkpoints of a log that the witness keeps because they contradict each other."""

    async def close(self) -> None: ...


class HttpWitnesses:
    """Witnesses at the addresses that the policy gives. Create it inside a running event loop."""

    def __init__(self, tls: Tls | None) -> None:
        context: ssl.SSLContext | bool = tls.context() if tls is not None else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context), timeout=aiohttp.ClientTimeout(total=ANSWER_SEC)
        )

    async def newest(self, witness: PolicyWitness, origin: str) -> SignedHead | None:
        found = await self._get(witness, f"checkpoint/{_hash_of(origin)}", MAX_NOTE_BYTES)
        if found is None:
            return None
        try:
            signed = parse_signed_head(found)
        except DecodeError as exc:
            raise Misbehaved(f"{witness.url} does not answer with a checkpoint: {exc}") from None
        if signed.head.origin != origin or not verified_signatures(signed.note, [witness.key]):
            raise SignatureError(
                f"{witness.url} shows a checkpoint that {witness.key.name} has not cosigned",
                action="check the witness's address and key in the policy",
            )
        return signed

    async def contradictions(self, witness: PolicyWitness, origin: str) -> list[SignedHead]:
        listed = await self._get(witness, "logs", MAX_LIST_BYTES)
        found: list[SignedHead] = []
        for name in _listed(listed, origin):
            data = await self._get(witness, f"contradiction/{name}", MAX_CONTRADICTION_BYTES)
            try:
                found += LogContradiction.decode(data or b"").heads
            except DecodeError:
                continue  # it proves nothing
        return [signed for signed in found if signed.head.origin == origin]

    async def _get(self, witness: PolicyWitness, path: str, max_bytes: int) -> bytes | None:
        url = f"{(witness.url or '').rstrip('/')}/{path}"
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status == 404:
                    return None
                if answer.status != 200:
                    raise Unreachable(f"{url}: HTTP {answer.status}")
                return await read_bounded(answer, max_bytes)
        except TimeoutError:
            raise Unreachable(f"{url}: no answer in {ANSWER_SEC:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise Unreachable(f"{url}: {str(exc) or type(exc).__name__}") from None

    async def close(self) -> None:
        await self._session.close()


def _hash_of(origin: str) -> str:
    return sha256(origin.encode()).hexdigest()


def _listed(data: bytes | None, origin: str) -> Iterator[str]:
    """Yield the ids of a log's proven contradictions, from the answer of ``/logs``."""
    try:
        content: Any = json.loads(data or b"null")
        logs = [log for log in content["logs"] if log["origin"] == origin]
        names = [one["id"] for log in logs for one in log["contradictions"] if one["is_evidence"]]
    except (ValueError, TypeError, KeyError):
        return  # not the answer of such a witness
    for name in names[:MAX_CONTRADICTIONS]:
        if isinstance(name, str) and name.isalnum():
            yield name
