"""Typed reads of one JSON value; each error names the field and the next step (query-api §4.4)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from veen_overlays.query.errors import QueryError, invalid


def describe(item: object) -> str:
    """Describe a JSON value for an error, without repeating its content."""
    match item:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return f"text of {len(item)} characters"
        case list():
            return f"an array of {len(item)}"
        case dict():
            return "an object"
        case _:
            return type(item).__name__


def want(what: str, item: object, where: str, action: str) -> QueryError:
    """Return the error of a value of the wrong type."""
    return invalid(where, f"want {what}, found {describe(item)}", action)


def read_object(item: object, where: str, known: Collection[str]) -> dict[str, Any]:
    """Return an object that has none but the ``known`` keys."""
    if type(item) is not dict:
        raise want("an object", item, where, f"write {{}} with the keys {', '.join(known)}")
    for key in item:
        if key not in known:
            raise invalid(where, f"unknown key {key[:40]!r}", f"use only {', '.join(known)}")
    return item


def read_text(item: object, where: str, max_characters: int) -> str:
    """Return text of 1 to ``max_characters`` characters."""
    if type(item) is not str:
        raise want("text", item, where, f"write 1 to {max_characters} characters")
    if not 1 <= len(item) <= max_characters:
        raise invalid(
            where, f"has {len(item)} characters", f"write 1 to {max_characters} characters, or leave it out"
        )
    return item


def read_list(item: object, where: str, max_items: int) -> list[Any]:
    """Return an array of 1 to ``max_items`` items."""
    if type(item) is not list:
        raise want("an array", item, where, f"write an array of 1 to {max_items} items")
    if not 1 <= len(item) <= max_items:
        raise invalid(where, f"has {len(item)} items", f"write 1 to {max_items} items")
    return item


def check_unique(items: list[Any] | tuple[Any, ...], where: str) -> None:
    """Refuse a list that names something twice."""
    if len(set(items)) != len(items):
        raise invalid(where, "names an item twice", "name each item once")
