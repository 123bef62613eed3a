"""From untyped settings to declared ones: dataclasses say what there is, errors name the key."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from veen_core.errors import ConfigError


def build(kind: Any, value: Any, key: str) -> Any:
    """``value`` as ``kind``, or a ``ConfigError`` that names the key."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _build_settings(kind, value, key)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(a for a in args if a is not type(None))
        if value is None and dataclasses.is_dataclass(inner):
            raise ConfigError(f"{key}: nothing under it; fill it in, or leave it out")
        return None if value is None else build(inner, value, key)
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{key}: want one of {', '.join(map(str, args))}, found {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{key}: want a list, found {kind_name(value)}")
        return tuple(build(args[0], item, f"{key}[{position}]") for position, item in enumerate(value))
    if origin is not None:  # a mapping
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key}: want a mapping, found {kind_name(value)}")
        return {str(name): build(args[1], item, f"{key}.{name}") for name, item in value.items()}
    return _build_plain(kind, value, key)


def _build_plain(kind: Any, value: Any, key: str) -> Any:
    if kind is Any:
        return value
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if kind is int and type(value) is int and value >= 0:
        return value
    if kind is not int and kind is not Path and type(value) is kind:
        return value
    wanted = {int: "a whole number from 0 on", bool: "true or false", str: "text", Path: "a path"}[kind]
    raise ConfigError(f"{key}: want {wanted}, found {kind_name(value)}")


def _build_settings(kind: type, value: Any, key: str) -> Any:
    if value is None:  # a section of which every line is commented out
        value = {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key or 'the file'}: want a mapping, found {kind_name(value)}")
    declared = {f.name: f for f in dataclasses.fields(kind)}
    prefix = f"{key}." if key else ""
    for name in value:
        if name not in declared:
            raise ConfigError(f"{prefix}{name}: unknown setting; there are {', '.join(declared)}")
    hints = get_type_hints(kind)
    given = {name: build(hints[name], item, f"{prefix}{name}") for name, item in value.items()}
    for name, declaration in declared.items():
        needed = (
            declaration.default is dataclasses.MISSING and declaration.default_factory is dataclasses.MISSING
        )
        if needed and name not in given:
            raise ConfigError(f"{prefix}{name}: missing")
    return kind(**given)


def kind_name(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r}"[:60]
