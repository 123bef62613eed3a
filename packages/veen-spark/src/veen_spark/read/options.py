"""Options of ``format("veen")``: case-insensitive names, as Spark users expect; unknown names are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from veen_spark.errors import SparkSetupError


class Options:
    """The options of one read, parsed. A misspelt option raises instead of being ignored."""

    def __init__(self, given: Mapping[str, str], known: frozenset[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        if unknown := sorted(self._given.keys() - known):
            raise SparkSetupError(
                f"format veen has no option {unknown[0]}", action=f"use one of {', '.join(sorted(known))}"
            )

    def text(self, name: str, default: str = "") -> str:
        """Return the option as it was given."""
        return self._given.get(name.lower(), default)

    def number(self, name: str, default: int) -> int:
        """Return the option as an integer ≥ 1."""
        value = self.text(name, str(default))
        if not value.isdecimal() or int(value) < 1:
            raise SparkSetupError(f"option {name}: {value} is not an integer ≥ 1")
        return int(value)

    def choice(self, name: str, values: Sequence[str]) -> str:
        """Return the option, which must be one of ``values``; the first is the default."""
        value = self.text(name, values[0]).lower()
        if value not in values:
            raise SparkSetupError(f"option {name}: {value} is not one of {', '.join(values)}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return the parts of a comma-separated option."""
        return tuple(part for text in self.text(name).split(",") if (part := text.strip()))

    def has(self, name: str) -> bool:
        """Return whether the option was given."""
        return name.lower() in self._given

    @property
    def paths(self) -> list[str]:
        """The paths given to ``load``."""
        if "paths" in self._given:
            return [str(path) for path in json.loads(self._given["paths"])]
        if "path" not in self._given:
            raise SparkSetupError(
                "format veen needs a path to read or a hub to follow",
                action='call load("exports/*"), or set the options hub and hubId',
            )
        return [self._given["path"]]
