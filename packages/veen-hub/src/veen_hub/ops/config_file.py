"""hub.yaml as untyped settings: YAML, loaded safely, and nothing of it lost.

YAML's own loader takes the last of two equal keys and drops the first without a word.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from veen_core.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in (key for key, _value in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ConfigError(f"{key.value}: there twice, again in line {line}; leave one of them out")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.load(path.read_text(encoding="utf-8"), _Loader) or {}  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: not YAML: {exc}") from None
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: want a mapping of settings at the top")
    return settings
