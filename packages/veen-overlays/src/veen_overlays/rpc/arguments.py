"""Arguments and results of methods, checked against the annotations of a Python function (RPC0.1).

    async def translate(text: str, to: Literal["de", "fr"] = "de") -> str: ...

The arguments of a call are a map of parameters by name, a list of parameters by position, or null for none.
Nothing is coerced. The types are those that deterministic CBOR has: ``None``, ``bool``, ``int``, ``str``,
``bytes``, ``list[T]``, ``dict[str, T]``, ``Literal``, unions of these, and ``Any``. It has no floats (B3).
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

_SCALARS: Final = (bool, int, str, bytes, type(None))


class ArgumentError(ValueError):
    """The arguments of a call do not fit the method; the text names the parameter."""


class SignatureDeclarationError(TypeError):
    """A function cannot be offered as a method; the text names the parameter."""


def is_of(value: Any, wanted: Any) -> bool:
    """Return whether a value is of a declared type; ``True`` is not an integer."""
    if wanted is Any:
        return True
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return any(is_of(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is list or wanted is list:
        return type(value) is list and all(is_of(each, parts[0]) for each in value if parts)
    if origin is dict or wanted is dict:
        if type(value) is not dict:
            return False
        return not parts or all(is_of(k, parts[0]) and is_of(v, parts[1]) for k, v in value.items())
    return type(value) is (type(None) if wanted is None else wanted)


def type_name(wanted: Any) -> str:
    """The type as a reader writes it."""
    if wanted is Any:
        return "any"
    return wanted.__name__ if type(wanted) is type else str(wanted).replace("typing.", "")


def _check_declarable(wanted: Any, where: str) -> None:
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin is Literal or wanted is Any or wanted in (*_SCALARS, None, list, dict):
        return
    is_map = origin is dict and parts[0] is str
    if is_map or origin in (Union, types.UnionType, list):
        for part in parts:
            _check_declarable(part, where)
        return
    raise SignatureDeclarationError(
        f"{where}: {type_name(wanted)} cannot travel in a record; use None, bool, int, str, bytes, list[T], "
        "dict[str, T], Literal, a union of them, or Any"
    )


@dataclass(frozen=True, slots=True)
class MethodSignature:
    """The parameters and the result of a method."""

    parameters: tuple[inspect.Parameter, ...]
    types: dict[str, Any]
    result: Any
    call_parameter: str | None
    """The parameter that gets the call itself: its key, its client and its deadline."""

    @classmethod
    def of(cls, function: Callable[..., Any], call_type: type) -> MethodSignature:
        """Read a function's annotations; raise ``SignatureDeclarationError`` if a type cannot travel."""
        hints = get_type_hints(function)
        found, own, name = [], None, getattr(function, "__name__", repr(function))
        for each in inspect.signature(function).parameters.values():
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise SignatureDeclarationError(f"{name}: *{each.name} is not a parameter with a type")
            if hints.get(each.name) is call_type:
                own = each.name
                continue
            if each.name not in hints:
                raise SignatureDeclarationError(f"{name}: parameter {each.name} has no annotation")
            _check_declarable(hints[each.name], f"{name}: parameter {each.name}")
            found.append(each)
        result = hints.get("return", Any)
        _check_declarable(result, f"{name}: the result")
        return cls(tuple(found), hints, result, own)

    def bind(self, args: Any) -> dict[str, Any]:
        """The keyword arguments of a call; raise ``ArgumentError`` unless they fit."""
        given = self._by_name(args)
        names = [each.name for each in self.parameters]
        if unknown := sorted(set(given) - set(names)):
            raise ArgumentError(
                f"no parameter {unknown[0]!r}; the parameters are {', '.join(names) or 'none'}"
            )
        for each in self.parameters:
            wanted = self.types[each.name]
            if each.name not in given:
                if each.default is each.empty:
                    raise ArgumentError(f"parameter {each.name!r} is missing: {type_name(wanted)}")
            elif not is_of(given[each.name], wanted):
                raise ArgumentError(f"parameter {each.name!r} is not {type_name(wanted)}")
        return given

    def _by_name(self, args: Any) -> dict[str, Any]:
        if args is None:
            return {}
        if type(args) is list:
            if len(args) > len(self.parameters):
                raise ArgumentError(f"{len(args)} arguments for {len(self.parameters)} parameters")
            return {each.name: arg for each, arg in zip(self.parameters, args, strict=False)}
        if type(args) is dict and all(type(name) is str for name in args):
            return args
        raise ArgumentError("args are neither a map by name, nor a list by position, nor null")

    def check_result(self, value: Any) -> None:
        """Raise ``TypeError`` if the method returned another type than it declares."""
        if not is_of(value, self.result):
            raise TypeError(f"the method returned {type(value).__name__}, not {type_name(self.result)}")

    def __str__(self) -> str:
        shown = [
            f"{each.name}: {type_name(self.types[each.name])}"
            + ("" if each.default is each.empty else f" = {each.default!r}")
            for each in self.parameters
        ]
        return f"({', '.join(shown)}) -> {type_name(self.result)}"
