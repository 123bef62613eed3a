"""What overlays are asked about, as people type it: identifiers in hex, realms by name, maps as JSON."""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

import click

from veen_core.errors import DecodeError
from veen_core.ids import FixedBytes
from veen_overlays.identifiers import RealmId, realm_id

F = TypeVar("F", bound=FixedBytes)


class Hex(click.ParamType[F], Generic[F]):
    """An identifier of one kind, in hex."""

    def __init__(self, kind: type[F]) -> None:
        self._kind = kind
        self.name = "hex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> F:
        if isinstance(value, self._kind):
            return value
        try:
            return self._kind.from_hex(str(value).lower())
        except DecodeError:
            self.fail(
                f"{value!r} is no {self._kind.__name__}: want {2 * self._kind.SIZE} hex digits", param, ctx
            )


class Realm(click.ParamType[RealmId]):
    """A realm's name, or its id in hex (ID 3.1)."""

    name = "realm"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RealmId:
        del param, ctx
        if isinstance(value, RealmId):
            return value
        text = str(value)
        try:
            return RealmId.from_hex(text.lower())
        except DecodeError:
            return realm_id(text)


class JsonMap(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        try:
            found = json.loads(value)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self.fail(f'{value!r} is no JSON object: write \'{{"name": "Bob"}}\'', param, ctx)
        return found


realm_option = click.option(
    "--realm",
    required=True,
    type=Realm(),
    envvar="VEEN_REALM",
    show_envvar=True,
    help="Name or id of the realm.",
)
