"""Anchoring in another hub: roots are messages of a stream there, anchor_refs are its receipts (ANCHOR0).

Publications are minutes apart, so each opens its own connection. The client's state is stored next to the
identity's file, so that a root sent just before a crash is settled, not lost.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeVar

from veen_core.cap import CapToken
from veen_core.client_state import ClientBounds
from veen_core.errors import ConfigError, DecodeError, VeenError
from veen_core.ids import Epoch, Label
from veen_core.keystore import Secrets
from veen_core.receipt import Receipt
from veen_core.wire import Wire
from veen_hub.client.connecting import connect
from veen_hub.client.hub import Hub
from veen_hub.client.reading.message import Message
from veen_hub.client.wire.retry import Retry
from veen_hub.client.wire.transport import Tls
from veen_hub.ops.anchors import AnchorBackend, HubAnchor, RecallingHubAnchor
from veen_hub.ops.config import AnchorSettings

W = TypeVar("W", bound=Wire)
SCHEMA: Final = "veen.anchor.v1"
RETRY: Final = Retry(max_attempts=3, deadline=15.0)
"""Short, because the hub repeats a publication that failed."""
MAX_READ_BACK: Final = 4_096
"""Newest anchors that a hub compares itself with when it starts."""
READ_BACK_EPOCHS: Final = 16
"""Epochs of the anchoring stream that are searched for them, under a profile with epochs."""


def _read(key: str, path: Path, kind: type[W]) -> W:
    try:
        return kind.decode(path.read_bytes())
    except OSError as exc:
        raise ConfigError(f"anchor.{key}: {path} cannot be read: {exc.strerror}") from None
    except DecodeError:
        raise ConfigError(f"anchor.{key}: {path} does not contain {kind.codec.name} in CBOR") from None


def _tls(ca: Path) -> Tls:
    """Load the certificate authority at start: a bad file is a configuration error, not a reason to retry."""
    tls = Tls(ca=ca)
    try:
        tls.context()
    except ConfigError as exc:
        raise ConfigError(f"anchor.ca: {exc}") from None
    return tls


class _AnchorStream:
    """The stream of the anchoring hub, with the two calls that ``HubAnchor`` needs."""

    def __init__(self, settings: AnchorSettings) -> None:
        if settings.url is None or settings.pinned is None or settings.identity is None:
            raise ConfigError(
                "anchor: a setting for anchoring in a hub is missing",
                action="set anchor.url, anchor.pinned and anchor.identity",
            )
        self._url, self._pinned, self._path = settings.url, settings.pinned, settings.identity
        self._stream = settings.stream
        self._tls = _tls(settings.ca) if settings.ca is not None else None
        self._secrets = _read("identity", settings.identity, Secrets)
        self._read_upto: tuple[Label | None, int] = (None, 0)
        """Label and stream_seq up to which ``read_back`` has read."""
        self._token = _read("token", settings.token, CapToken) if settings.token is not None else None

    def _connect(self) -> AbstractAsyncContextManager[Hub]:
        # A token names one client_id, so the client_id is used for the token's lifetime (KEX1+ 4.1).
        bounds = ClientBounds(max_client_id_lifetime_sec=self._token.allow.ttl) if self._token else None
        state = self._path.with_name(f"{self._path.name}.state")
        return connect(
            self._url,
            self._secrets,
            trust=self._pinned,
            tls=self._tls,
            state=state,
            retry=RETRY,
            bounds=bounds,
        )

    async def send(self, body: bytes) -> bytes:
        """Publish a body; returns the encoded receipt, which is the anchor_ref."""
        async with self._connect() as hub:
            receipt = await hub.stream(self._stream).send(body, schema=SCHEMA, cap=self._token)
            return receipt.encode()

    async def read_back(self) -> list[bytes]:
        """Return the newest bodies that this identity has sent, without those of the last call, in order."""
        async with self._connect() as hub:
            stream = hub.stream(self._stream)
            newest = hub.epoch_at(hub.connection.status.hub_ts)
            for epoch in range(newest, max(-1, newest - READ_BACK_EPOCHS), -1):
                head = await stream.head(epoch=Epoch(epoch))
                if head is not None:
                    read_upto = self._read_upto[1] if self._read_upto[0] == head.label else 0
                    first = max(read_upto, head.stream_seq - MAX_READ_BACK) + 1
                    messages = stream.read(first, head.stream_seq, epoch=Epoch(epoch))
                    found = [message.body async for message in messages if self._sent(message)]
                    self._read_upto = head.label, head.stream_seq
                    return found
            return []

    def _sent(self, message: Message) -> bool:
        """Return whether this identity sent the message, under its token."""
        return self._token is not None and message.client_id == self._token.subject_pk and message.is_open

    async def check(self, body: bytes, anchor_ref: bytes) -> bool:
        """Return whether the anchoring hub proves that its log holds ``body`` under this receipt."""
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


def hub_anchor(settings: AnchorSettings) -> AnchorBackend:
    """Make the anchor that the setting ``anchor.backend: hub`` selects."""
    stream = _AnchorStream(settings)
    if settings.token is None:  # anyone may write to the stream, so what it holds may not be this hub's
        return HubAnchor(stream.send, stream.check)
    return RecallingHubAnchor(stream.send, stream.check, stream.read_back)
