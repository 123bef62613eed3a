"""Options of ``format("veen")``: names as Spark users expect them, in any case, and no others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from veen_spark.errors import SparkSetupError


class Options:
    """What was asked of the source, checked: a misspelt option would otherwise be no option."""

    def __init__(self, given: Mapping[str, str], known: frozenset[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        if unknown := sorted(self._given.keys() - known):
            raise SparkSetupError(
                f"format veen has no option {unknown[0]}: it has {', '.join(sorted(known))}"
            )

    def text(self, name: str, default: str = "") -> str:
        return self._given.get(name.lower(), default)

    def number(self, name: str, default: int) -> int:
        value = self.text(name, str(default))
        if not value.isdecimal() or int(value) < 1:
            raise SparkSetupError(f"option {name}: want a whole number of at least 1, found {value}")
        return int(value)

    def choice(self, name: str, values: Sequence[str]) -> str:
        value = self.text(name, values[0]).lower()
        if value not in values:
            raise SparkSetupError(f"option {name}: want {' or '.join(values)}, found {value}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Comma separated."""
        return tuple(part for text in self.text(name).split(",") if (part := text.strip()))

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    @property
    def paths(self) -> list[str]:
        if "paths" in self._given:
            return [str(path) for path in json.loads(self._given["paths"])]
        if "path" not in self._given:
            raise SparkSetupError('format veen reads a path: load("exports/*"), or follows a hub: option hub')
        return [self._given["path"]]
