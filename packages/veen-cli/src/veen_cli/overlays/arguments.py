"""Arguments of overlay commands: a realm by name or id, a map as JSON."""

from __future__ import annotations

import json
from typing import Any

import click

from veen_core import cbor
from veen_core.errors import VeenError
from veen_overlays.identifiers import RealmId, parse_realm


class Realm(click.ParamType[RealmId]):
    """A realm's name, or its id in hex (ID 3.1)."""

    name = "realm"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RealmId:
        del param, ctx
        if isinstance(value, RealmId):
            return value
        return parse_realm(str(value))


class JsonMap(click.ParamType[dict[str, Any]]):
    """A JSON object that a record can contain: no fractions, no number beyond 64 bits (core §3.1)."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.fail(f'{value!r} is not a JSON object such as {{"name": "Bob"}}', param, ctx)
        try:
            cbor.encode(found)
        except VeenError as exc:
            self.fail(f"{value!r}: {exc}; write the value as a string", param, ctx)
        return found


def describe_realm(realm: RealmId) -> str:
    """The description of a realm in errors: its id, because ``Realm`` does not keep the name."""
    return f"realm (id {realm.hex()})"


realm_option = click.option(
    "--realm",
    required=True,
    type=Realm(),
    envvar="VEEN_REALM",
    show_envvar=True,
    help="Name or id of the realm.",
)
