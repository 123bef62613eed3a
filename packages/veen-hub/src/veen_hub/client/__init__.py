"""The asyncio client of a hub (§9); docs/python-client.md is its guide.

    alice = Identity.load("alice", passphrase)
    async with connect("https://hub.example", alice, trust="<hub_id>", state="alice/state") as hub:
        stream = hub.stream("orders")
        receipt = await stream.send("two coffees")
        async for message in stream.read():
            print(message.stream_seq, message.text)

The client verifies every answer before it returns it, keeps durable state per label, and settles messages
that a crash or a lost answer left pending. ``veen_hub.client.blocking`` offers the same without ``await``.

Each name is imported on first use: a program that needs only the errors does not load the HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veen_hub.client.admin import Admin
    from veen_hub.client.atomic_files import create_file, replace_file, sync_folder
    from veen_hub.client.connecting import connect
    from veen_hub.client.errors import (
        BadRequest,
        BoundsReached,
        CapRefused,
        Conflict,
        Denied,
        Diverged,
        Misbehaved,
        NotFound,
        OutOfTime,
        RateLimited,
        Refused,
        TooLarge,
        TooMuchWork,
        Unavailable,
        Unconfirmed,
        Unreachable,
    )
    from veen_hub.client.hub import Hub
    from veen_hub.client.hub_log import LabelHeads, TileReader
    from veen_hub.client.identity import Identity
    from veen_hub.client.log import HubLogReader, HubLogWriter
    from veen_hub.client.reading import Message
    from veen_hub.client.sending import (
        ATTACHED,
        BYTES,
        TEXT,
        AttachmentRef,
        Body,
        Composer,
        Delivery,
        Outgoing,
        Record,
        Sending,
        Source,
    )
    from veen_hub.client.state import FileStateStore, MemoryStateStore, StateStore
    from veen_hub.client.stream import Recipient, Stream
    from veen_hub.client.tokens import TokenSource, held_tokens
    from veen_hub.client.trust import Pin, PinOnFirstUse
    from veen_hub.client.wire.retry import Retry
    from veen_hub.client.wire.transport import HubResponse, HubTransport, Timeouts, Tls
    from veen_hub.client.wire.transport_choice import transport_to

__all__ = [
    "ATTACHED",
    "BYTES",
    "TEXT",
    "Admin",
    "AttachmentRef",
    "BadRequest",
    "Body",
    "BoundsReached",
    "CapRefused",
    "Composer",
    "Conflict",
    "Delivery",
    "Denied",
    "Diverged",
    "FileStateStore",
    "Hub",
    "HubLogReader",
    "HubLogWriter",
    "HubResponse",
    "HubTransport",
    "Identity",
    "LabelHeads",
    "MemoryStateStore",
    "Message",
    "Misbehaved",
    "NotFound",
    "OutOfTime",
    "Outgoing",
    "Pin",
    "PinOnFirstUse",
    "RateLimited",
    "Recipient",
    "Record",
    "Refused",
    "Retry",
    "Sending",
    "Source",
    "StateStore",
    "Stream",
    "TileReader",
    "Timeouts",
    "Tls",
    "TokenSource",
    "TooLarge",
    "TooMuchWork",
    "Unavailable",
    "Unconfirmed",
    "Unreachable",
    "connect",
    "create_file",
    "held_tokens",
    "replace_file",
    "sync_folder",
    "transport_to",
]

if not TYPE_CHECKING:  # mypy must refuse names that are not listed above
    _MODULES = {
        "admin": ("Admin",),
        "atomic_files": ("create_file", "replace_file", "sync_folder"),
        "connecting": ("connect",),
        "errors": (
            "BadRequest",
            "BoundsReached",
            "CapRefused",
            "Conflict",
            "Denied",
            "Diverged",
            "Misbehaved",
            "NotFound",
            "OutOfTime",
            "RateLimited",
            "Refused",
            "TooLarge",
            "TooMuchWork",
            "Unavailable",
            "Unconfirmed",
            "Unreachable",
        ),
        "hub": ("Hub",),
        "hub_log": ("LabelHeads", "TileReader"),
        "identity": ("Identity",),
        "log": ("HubLogReader", "HubLogWriter"),
        "reading": ("Message",),
        "sending": (
            "ATTACHED",
            "BYTES",
            "TEXT",
            "AttachmentRef",
            "Body",
            "Composer",
            "Delivery",
            "Outgoing",
            "Record",
            "Sending",
            "Source",
        ),
        "state": ("FileStateStore", "MemoryStateStore", "StateStore"),
        "stream": ("Recipient", "Stream"),
        "tokens": ("TokenSource", "held_tokens"),
        "trust": ("Pin", "PinOnFirstUse"),
        "wire.retry": ("Retry",),
        "wire.transport_choice": ("transport_to",),
        "wire.transport": ("HubResponse", "HubTransport", "Timeouts", "Tls"),
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value  # next time Python finds it without this function
        return value
