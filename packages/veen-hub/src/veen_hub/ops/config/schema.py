"""Typed settings from untyped ones: the declared dataclasses are the schema, and errors name the key."""

from __future__ import annotations

import dataclasses
import datetime
import types
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from veen_core.errors import DecodeError
from veen_core.ids import FixedBytes
from veen_core.tlog.note import NoteKey, parse_key
from veen_hub.ops.config.setting_error import SettingError

_EXPECTED: Final = {int: "an integer >= 0", bool: "true or false", str: "text", Path: "a path"}
_KINDS: Final = {
    bool: "the value",
    int: "the number",
    float: "the number",
    str: "the text",
    list: "the list",
    dict: "the mapping",
}


def build(kind: Any, value: Any, key: str) -> Any:
    """Convert ``value`` to ``kind``, or raise a ``ConfigError`` that names the key."""
    if kind is NoteKey:
        return _build_key(value, key)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _build_settings(kind, value, key)
    origin, args = get_origin(kind), get_args(kind)
    if set(args) == {IPv4Network, IPv6Network}:
        return _parse(lambda: ip_network(value), key)
    if origin in (Union, types.UnionType):
        words = [word for arg in args if get_origin(arg) is Literal for word in get_args(arg)]
        if value in words:
            return value
        inner = next(a for a in args if a is not type(None))
        if value is None and dataclasses.is_dataclass(inner):
            raise SettingError(key, "empty; give its settings, or remove it")
        return None if value is None else build(inner, value, key)
    if origin is Literal:
        if value not in args:
            raise SettingError(key, f"{value!r} is not one of {', '.join(map(str, args))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise SettingError(key, f"must be a list, not {kind_name(value)}")
        return tuple(build(args[0], item, f"{key}[{position}]") for position, item in enumerate(value))
    if origin is not None:  # a mapping
        if not isinstance(value, Mapping):
            raise SettingError(key, f"must be a mapping, not {kind_name(value)}")
        return {
            build(args[0], str(name), f"{key}.{name}"): build(args[1], item, f"{key}.{name}")
            for name, item in value.items()
        }
    return _build_plain(kind, value, key)


def _build_plain(kind: Any, value: Any, key: str) -> Any:
    if kind is Any:
        return value
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if issubclass(kind, FixedBytes) and isinstance(value, str):
        return _parse(lambda: kind.from_hex(value), key)
    if kind is int and type(value) is int and value >= 0:
        return value
    if kind is not int and kind is not Path and type(value) is kind:
        return value
    quote = "; put the value in quotes" if issubclass(kind, str | FixedBytes) and _is_scalar(value) else ""
    raise SettingError(key, f"must be {_EXPECTED.get(kind, 'text in hex')}, not {kind_name(value)}{quote}")


def _build_key(value: Any, key: str) -> NoteKey:
    if not isinstance(value, str):
        raise SettingError(key, f"must be a verifier key, <name>+<key id>+<base64>, not {kind_name(value)}")
    try:
        return parse_key(value)
    except DecodeError as exc:
        raise SettingError(key, f"{exc}") from None


def _is_scalar(value: Any) -> bool:
    """Return whether YAML read something unquoted as a number, a boolean or a date."""
    return isinstance(value, int | float | datetime.date)


def _parse(parse: Any, key: str) -> Any:
    try:
        return parse()
    except (DecodeError, ValueError) as exc:
        raise SettingError(key, f"{exc}") from None


def _build_settings(kind: type, value: Any, key: str) -> Any:
    if value is None:  # a section whose every line is commented out
        value = {}
    if not isinstance(value, Mapping):
        raise SettingError(key or "the file", f"must be a mapping, not {kind_name(value)}")
    declared = {f.name: f for f in dataclasses.fields(kind)}
    prefix = f"{key}." if key else ""
    for name in value:
        if name not in declared:
            close = get_close_matches(str(name), declared, n=1)
            hint = f"did you mean {close[0]}? Known are" if close else "known are"
            raise SettingError(f"{prefix}{name}", f"unknown setting; {hint} {', '.join(declared)}")
    hints = get_type_hints(kind)
    given = {name: build(hints[name], item, f"{prefix}{name}") for name, item in value.items()}
    for name, declaration in declared.items():
        required = (
            declaration.default is dataclasses.MISSING and declaration.default_factory is dataclasses.MISSING
        )
        if required and name not in given:
            raise SettingError(f"{prefix}{name}", "missing")
    return kind(**given)


def kind_name(value: Any) -> str:
    """Describe a value in an error, shortened."""
    return "empty" if value is None else f"{_KINDS.get(type(value), type(value).__name__)} {value!r}"[:60]
