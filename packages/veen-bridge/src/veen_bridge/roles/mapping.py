"""Stream mapping: which import stream receives the events of an export stream (AGB0 4.5 step 3).

A rule replaces a name, or a pattern with one ``*``: ``export/zone1/* → import/zone1/*``. The ``*`` stands for
any text and is copied. The rules of a bridge are one-to-one: two rules whose targets may coincide are refused
when the configuration is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from veen_core.errors import ConfigError
from veen_core.ids import HubId

STAR = "*"


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A name, or a prefix and a suffix with any text between them."""

    text: str

    @property
    def _ends(self) -> tuple[str, str]:
        prefix, _, suffix = self.text.partition(STAR)
        return prefix, suffix

    @property
    def is_open(self) -> bool:
        return STAR in self.text

    def match(self, name: str) -> str | None:
        """The text that ``*`` stands for, empty for a plain name; None if the name does not match."""
        if not self.is_open:
            return "" if name == self.text else None
        prefix, suffix = self._ends
        fits = len(name) > len(prefix) + len(suffix) and name.startswith(prefix) and name.endswith(suffix)
        return name[len(prefix) : len(name) - len(suffix)] if fits else None

    def fill(self, text: str) -> str:
        """The name in which ``*`` is replaced by a text."""
        return self.text.replace(STAR, text)

    def overlaps(self, other: NamePattern) -> bool:
        """Whether some name matches both."""
        if not self.is_open:
            return other.match(self.text) is not None
        if not other.is_open:
            return self.match(other.text) is not None
        (a, z), (b, y) = self._ends, other._ends
        return (a.startswith(b) or b.startswith(a)) and (z.endswith(y) or y.endswith(z))


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingRule:
    """One rule: names that match ``source`` become ``target``."""

    source: NamePattern
    target: NamePattern

    @classmethod
    def of(cls, source: str, target: str) -> MappingRule:
        for name in (source, target):
            if not name or name.count(STAR) > 1:
                raise ConfigError(f"mapping: {name!r} must be a stream name with at most one *")
        if (STAR in source) != (STAR in target):
            raise ConfigError(
                f"mapping: {source!r} to {target!r}: either both names have a *, or neither has; "
                "otherwise several streams would become one"
            )
        return cls(source=NamePattern(source), target=NamePattern(target))

    def apply(self, name: str) -> str | None:
        found = self.source.match(name)
        return None if found is None else self.target.fill(found)


DEFAULT_RULES = (MappingRule.of("export/*", "import/*"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMapping:
    """The rules for one source hub, in order; the first that matches applies."""

    rules: tuple[MappingRule, ...] = DEFAULT_RULES

    def target(self, name: str) -> str:
        """The import stream of an export stream; raise ``ConfigError`` if no rule matches."""
        for rule in self.rules:
            if (target := rule.apply(name)) is not None:
                return target
        known = ", ".join(rule.source.text for rule in self.rules)
        raise ConfigError(
            f"no mapping rule matches stream {name}; the rules are for {known}",
            action="add a rule to `mapping` in the bridge's configuration",
        )


def check_one_to_one(mappings: Iterable[tuple[HubId, StreamMapping]]) -> None:
    """Raise ``ConfigError`` if two rules may write to one import stream (J1)."""
    rules = [(hub, rule) for hub, mapping in mappings for rule in mapping.rules]
    for (hub, rule), (other_hub, other) in combinations(rules, 2):
        if rule.target.overlaps(other.target):
            where = "" if hub == other_hub else " of two source hubs"
            raise ConfigError(
                f"mapping: the targets {rule.target.text} and {other.target.text}{where} may be the same "
                "stream; the mapping must be one-to-one (AGB0 4.5, J1)",
                action="give each source its own names below import/",
            )
