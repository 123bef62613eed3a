"""A YAML file as untyped settings, loaded safely.

PyYAML silently keeps the last of two equal keys; this loader refuses them.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from veen_core.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in (key for key, _value in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ConfigError(f"{key.value}: given twice, again in line {line}; remove one of them")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[str, Any]:
    """Read the file as a mapping."""
    try:
        settings = yaml.load(path.read_text(encoding="utf-8"), _Loader) or {}  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"{path}: not YAML{where}: {exc.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: not YAML: {exc}") from None
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: must be a mapping of settings")
    return settings
