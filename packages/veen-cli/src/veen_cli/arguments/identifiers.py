"""Identifiers on the command line, in hex."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import click

from veen_core.errors import DecodeError
from veen_core.ids import FixedBytes

F = TypeVar("F", bound=FixedBytes)


class Hex(click.ParamType[F], Generic[F]):
    """An identifier of the given class, in hex."""

    def __init__(self, kind: type[F]) -> None:
        self._kind = kind
        self.name = "hex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> F:
        if isinstance(value, self._kind):
            return value
        try:
            return self._kind.from_hex(str(value).lower())
        except DecodeError:
            # The name as documents and commands write it: hub_id, not HubId.
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self._kind.__name__).lower()
            article = "an" if name[0] in "aeio" else "a"
            self.fail(f"{value!r} is not {article} {name} of {2 * self._kind.SIZE} hex digits", param, ctx)
