"""An object as JSON and as lines for a person: fields by name, hashes in hex, times in UTC, no secrets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from veen_cli.arguments import times
from veen_cli.evidence.hub_log import checkpoint_fields
from veen_cli.evidence.query_result import result_fields
from veen_cli.evidence.recognition.recognized import Bare, Thing, Unknown, name_of
from veen_cli.evidence.rpc_transcript import transcript_fields
from veen_cli.frame.output import plural
from veen_core.cap import CapToken
from veen_core.entry import Entry
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Secret
from veen_core.keystore import Keystore
from veen_core.msg import Msg
from veen_core.stream import hub_id
from veen_core.tlog.tree_head import SignedHead
from veen_core.wire import Wire
from veen_overlays.query.result.result_file import ResultFile
from veen_overlays.rpc.transcript import Transcript

MAX_SHOWN_BYTES: Final = 96
"""A longer byte string is abbreviated in text output."""
MAX_SHOWN_ITEMS: Final = 10_000
"""A longer list is shortened in text output."""
TIMES: Final = (
    "hub_ts",
    "valid_from",
    "valid_until",
    "expires_at",
    "issued_at",
    "created_at",
    "pruned_at",
    "from_ts",
    "to_ts",
    "ts",
)
HIDDEN: Final = "(secret, not shown)"


def titled(name: str, section: str) -> str:
    """Return a name with the section that defines it; a bare number is a section of core.md."""
    return f"{name} (core §{section})" if section[:1].isdecimal() else f"{name} ({section})"


def plain(value: Any) -> Any:
    """Convert a value for JSON: fields by name, bytes in hex, secrets replaced by a note."""
    match value:
        case Secret():
            return HIDDEN
        case bytes():
            return value.hex()
        case Wire():
            held = ((field.name, getattr(value, field.name)) for field in value.codec.fields)
            return {name: plain(item) for name, item in held if item is not None}
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case _:
            return value


def derived(thing: Thing) -> dict[str, str]:
    """Return values that are computed from an object and are not fields of it."""
    match thing:
        case Msg():
            return {"leaf_hash (its id)": thing.leaf_hash.hex()}
        case CapToken():
            return {"auth_ref": thing.auth_ref.hex(), "token_hash": thing.token_hash.hex()}
        case HubIdentity() if thing.hub_keys:
            return {"hub_id of its first key": hub_id(thing.hub_keys[0].hub_pk).hex()}
        case Keystore():
            return {"secrets": "sealed with a passphrase"}
        case Entry():
            return {"entry_hash": thing.entry_hash.hex()}
        case Bare():
            return dict(thing.derived)
        case _:
            return {}


def as_dict(thing: Thing) -> dict[str, Any]:
    """Render an object for ``--json``."""
    found: dict[str, Any] = {"kind": name_of(thing)}
    match thing:
        case ResultFile() | Transcript():
            found |= {"section": thing.codec.section, "value": plain(_file_fields(thing))}
        case Wire():
            found |= {"section": thing.codec.section, "value": plain(thing)}
        case Bare():
            found |= {"section": thing.section, "value": plain(dict(thing.held))}
        case SignedHead():
            found |= {"section": "C2SP tlog-checkpoint", "value": plain(checkpoint_fields(thing))}
        case Entry():
            found |= {
                "section": "4.8.1",
                "value": plain({"label": thing.label, "stream_seq": thing.stream_seq}),
            }
            inner = "token" if thing.is_authorize else "msg"
            found["value"] |= {inner: plain(_payload(thing)), "receipt": plain(thing.receipt)}
        case Unknown():
            found["value"] = plain(thing.item)
    return found | ({"derived": extra} if (extra := derived(thing)) else {})


def _payload(entry: Entry) -> Wire:
    return CapToken.decode(entry.msg_bytes) if entry.is_authorize else entry.msg


def _file_fields(file: ResultFile | Transcript) -> dict[str, object]:
    return result_fields(file) if isinstance(file, ResultFile) else transcript_fields(file)


def as_lines(thing: Thing) -> Iterator[str]:
    """Render an object for a person."""
    match thing:
        case ResultFile() | Transcript():
            yield titled(thing.codec.name, thing.codec.section)
            for name, item in _file_fields(thing).items():
                yield from _value(name, item, "  ")
        case Wire():
            yield titled(thing.codec.name, thing.codec.section)
            yield from _fields(thing, "  ")
        case Bare():
            yield titled(thing.name, thing.section)
            for name, item in thing.held.items():
                yield from _value(name, item, "  ")
        case SignedHead():
            yield titled(name_of(thing), "C2SP tlog-checkpoint")
            for name, item in checkpoint_fields(thing).items():
                yield from _value(name, item, "  ")
        case Entry():
            yield f"log entry {thing.stream_seq} of label {thing.label.hex()} (core §4.8.1)"
            for part in (_payload(thing), thing.receipt):
                yield f"  {titled(part.codec.name, part.codec.section)}"
                yield from _fields(part, "    ")
        case Unknown():
            yield name_of(thing)
            yield from _value("", thing.item, "  ")
    for name, value in derived(thing).items():
        yield f"  → {name}: {value}"


def _fields(value: Wire, indent: str) -> Iterator[str]:
    for field in value.codec.fields:
        if (item := getattr(value, field.name)) is not None:
            yield from _value(field.name, item, indent)


def _value(name: str, item: Any, indent: str) -> Iterator[str]:
    label = f"{name}: " if name else ""
    match item:
        case Wire():
            yield f"{indent}{name or item.codec.name}"
            yield from _fields(item, indent + "  ")
        case list() | tuple() if item:
            yield f"{indent}{label}{plural(len(item), 'item')}" if name else f"{indent}a list of {len(item)}"
            for each in item[:MAX_SHOWN_ITEMS]:
                first, *rest = _value("", each, "")
                yield f"{indent}  - {first}"
                yield from (f"{indent}    {line}" for line in rest)
            if len(item) > MAX_SHOWN_ITEMS:
                yield f"{indent}  … and {len(item) - MAX_SHOWN_ITEMS} more: --json has them all"
        case list() | tuple():
            yield f"{indent}{label}none"
        case dict():
            yield f"{indent}{label}a map of {len(item)}"
            for key, each in item.items():
                yield from _value(str(plain(key)), each, indent + "  ")
        case _:
            yield f"{indent}{label}{_scalar(name, item)}"


def _scalar(name: str, item: Any) -> str:
    match item:
        case Secret():
            return HIDDEN
        case bytes() if len(item) > MAX_SHOWN_BYTES:
            return f"{item[:32].hex()}… ({len(item)} bytes)"
        case bytes():
            return item.hex() or "(no bytes)"
        case bool():
            return "yes" if item else "no"
        case int() if name in TIMES:
            return f"{item} ({times.format_utc(item)})"
        case _:
            return str(item)
