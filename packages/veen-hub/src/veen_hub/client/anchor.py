"""Anchoring in another hub: its stream holds the roots, its receipts are the anchor_refs (ANCHOR0).

A connection per publication: they are minutes apart. The state lies beside the identity's file, so that a
root that was sent just before a crash is settled, not lost.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeVar

from veen_core.cap import CapToken
from veen_core.client_state import ClientBounds
from veen_core.errors import ConfigError, DecodeError, VeenError
from veen_core.keystore import Secrets
from veen_core.receipt import Receipt
from veen_core.wire import Wire
from veen_hub.client.hub import Hub, connect
from veen_hub.client.wire.retry import Retry
from veen_hub.client.wire.transport import Tls
from veen_hub.ops.anchors import Anchor, HubAnchor
from veen_hub.ops.config import AnchorSettings

W = TypeVar("W", bound=Wire)
SCHEMA: Final = "veen.anchor.v1"
PATIENCE: Final = Retry(max_attempts=3, deadline=15.0)
"""The hub tries again by itself: one attempt need not take long."""


def _read(key: str, path: Path, kind: type[W]) -> W:
    try:
        return kind.decode(path.read_bytes())
    except OSError as exc:
        raise ConfigError(f"anchor.{key}: {path}: {exc.strerror}") from None
    except DecodeError:
        raise ConfigError(f"anchor.{key}: {path} does not hold {kind.codec.name}") from None


def _tls(ca: Path) -> Tls:
    """Tried at the start: what is wrong with it is no reason to try again later."""
    made = Tls(ca=ca)
    try:
        made.context()
    except ConfigError as exc:
        raise ConfigError(f"anchor.ca: {exc}") from None
    return made


class _Anchoring:
    """The two things that ``HubAnchor`` needs of a stream."""

    def __init__(self, settings: AnchorSettings) -> None:
        if settings.url is None or settings.pinned is None or settings.identity is None:
            raise ConfigError(
                "anchor: anchoring in a hub needs anchor.url, anchor.pinned and anchor.identity"
            )
        self._url, self._pinned, self._path = settings.url, settings.pinned, settings.identity
        self._stream = settings.stream
        self._tls = _tls(settings.ca) if settings.ca is not None else None
        self._secrets = _read("identity", settings.identity, Secrets)
        self._token = _read("token", settings.token, CapToken) if settings.token is not None else None

    def _connect(self) -> AbstractAsyncContextManager[Hub]:
        # A token names one client_id, so that one serves for as long as the token does (KEX1+ 4.1).
        bounds = ClientBounds(max_client_id_lifetime_sec=self._token.allow.ttl) if self._token else None
        state = self._path.with_name(f"{self._path.name}.state")
        return connect(
            self._url,
            self._secrets,
            trust=self._pinned,
            tls=self._tls,
            state=state,
            retry=PATIENCE,
            bounds=bounds,
        )

    async def send(self, body: bytes) -> bytes:
        async with self._connect() as hub:
            receipt = await hub.stream(self._stream).send(body, schema=SCHEMA, cap=self._token)
            return receipt.encode()

    async def check(self, body: bytes, anchor_ref: bytes) -> bool:
        """The anchoring hub's log holds this body under that receipt, and proves it."""
        try:
            receipt = Receipt.decode(anchor_ref)
            async with self._connect() as hub:
                stream = hub.stream(self._stream)
                epoch = hub.epoch_at(receipt.hub_ts)
                if stream.label(epoch) != receipt.label:
                    return False
                found = [m async for m in stream.read(receipt.stream_seq, receipt.stream_seq, epoch=epoch)]
                return len(found) == 1 and found[0].receipt == receipt and found[0].body == body
        except VeenError:
            return False


def hub_anchor(settings: AnchorSettings) -> Anchor:
    """The anchor that ``anchor.backend: hub`` names."""
    anchoring = _Anchoring(settings)
    return HubAnchor(anchoring.send, anchoring.check)
