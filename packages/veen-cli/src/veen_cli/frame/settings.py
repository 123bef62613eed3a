"""What fills in a flag that was not given: the environment, then the context in use.

A context is a named set of defaults, kept in ``contexts.json`` under ``$VEEN_CONFIG_DIR``, else
``$XDG_CONFIG_HOME/veen``, else ``~/.config/veen``. Nothing secret is in it. Order: flag, variable, context.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import urlsplit

import click

from veen_cli.frame.exits import CommandFailed, Exit

FIRST: Final = "first"
_PIN: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Defaults for flags of the same names; paths are absolute."""

    hub: str | None = None
    trust: str | None = None
    client: str | None = None
    data_dir: str | None = None
    stream: str | None = None
    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None

    def told(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value is not None}


KEYS = tuple(each.name for each in fields(Context))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """All of them, and which one is in use."""

    current: str | None = None
    named: dict[str, Context] = field(default_factory=dict)

    def with_one(self, name: str, context: Context) -> Contexts:
        return replace(self, named={**self.named, name: context})

    def without(self, name: str) -> Contexts:
        named = {key: value for key, value in self.named.items() if key != name}
        return Contexts(current=None if self.current == name else self.current, named=named)

    def get(self, name: str) -> Context:
        try:
            return self.named[name]
        except KeyError:
            raise CommandFailed(
                f"there is no context '{name}': make it with `veen context add {quote(name)} --hub URL`",
                Exit.USAGE,
            ) from None


def path() -> Path:
    if folder := os.environ.get("VEEN_CONFIG_DIR"):
        return Path(folder, "contexts.json")
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home, "veen", "contexts.json")


def load() -> Contexts:
    try:
        content = json.loads(path().read_text(encoding="utf-8"))
        named = {str(name): _context(value) for name, value in content["contexts"].items()}
        current = content["current"]
        return Contexts(current=current if current in named else None, named=named)
    except FileNotFoundError:
        return Contexts()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandFailed(f"{path()}: not a list of contexts; repair or remove it", Exit.USAGE) from None


def _context(value: dict[str, Any]) -> Context:
    return Context(**{key: str(value[key]) for key in KEYS if key in value})


def save(contexts: Contexts) -> None:
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    named = {name: context.told() for name, context in sorted(contexts.named.items())}
    text = json.dumps({"current": contexts.current, "contexts": named}, indent=2, ensure_ascii=False)
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(target)


def in_use() -> Context:
    """The one that ``--context`` or ``VEEN_CONTEXT`` names, else that of ``veen context use``, else none."""
    running = click.get_current_context(silent=True)
    contexts = load()
    name = (running.find_root().params.get("context") if running is not None else None) or contexts.current
    return contexts.get(name) if name else Context()


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def filled(name: str, given: str | None) -> str | None:
    """A flag's value (or its variable's, which click has read), else the context's; nothing is no value."""
    if given == "":
        raise click.UsageError(f"{flag(name)} is empty: a variable of your shell that is not set?")
    return given if given is not None else getattr(in_use(), name)


def needed(name: str, given: str | None) -> str:
    """The same, or wrong usage that says where it may come from."""
    value = filled(name, given)
    if value is None:
        variable = f"VEEN_{name.upper()}"
        raise click.UsageError(
            f"{flag(name)} is missing: give it, set {variable}, or use a context that has it."
        )
    return value


def trust_of(text: str | None) -> str | None:
    """Whom to believe: hub_id or first hub_pk in 64 hex digits, or ``first`` (§8.4)."""
    if text is None or text == FIRST:
        return text
    found = text.strip().lower()
    if _PIN.fullmatch(found) is None:
        raise click.UsageError(
            f"--trust {text}: want the hub's hub_id or first hub_pk as 64 hex digits (`veen hub keys` shows "
            "them), or 'first'."
        )
    return found


def address_of(text: str) -> str:
    """Where a hub is: a URL with a host."""
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none, a bracket too many
        fits = False
    if not fits:
        raise click.UsageError(f"--hub {text}: want an address like https://hub.example:8080.")
    return text
