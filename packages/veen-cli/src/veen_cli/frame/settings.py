"""Contexts: named sets of defaults for flags that are not given.

They are kept in ``contexts.json`` under ``$VEEN_CONFIG_DIR``, else ``$XDG_CONFIG_HOME/veen``, else
``~/.config/veen``, and hold no secrets. A flag has precedence over its environment variable, and the variable
over the context; a context that ``--context`` names has precedence over variables.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from veen_cli.frame.exits import CommandFailed, Exit

FIRST: Final = "first"
_PIN: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedContext:
    """Default values for the flags of the same names; paths are absolute."""

    hub: str | None = None
    trust: str | None = None
    client: str | None = None
    data_dir: str | None = None
    stream: str | None = None
    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None
    witnesses: str | None = None
    successor: str | None = None

    def as_dict(self) -> dict[str, str]:
        """Return the values that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


KEYS: Final = tuple(each.name for each in fields(SavedContext))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """All contexts, and the name of the current one."""

    current: str | None = None
    named: dict[str, SavedContext] = field(default_factory=dict)

    def with_one(self, name: str, context: SavedContext) -> Contexts:
        return replace(self, named={**self.named, name: context})

    def without(self, name: str) -> Contexts:
        named = {key: value for key, value in self.named.items() if key != name}
        return Contexts(current=None if self.current == name else self.current, named=named)

    def get(self, name: str) -> SavedContext:
        try:
            return self.named[name]
        except KeyError:
            close = get_close_matches(name, self.named, n=1)
            action = (
                f"use `{close[0]}`, or see `veen context list`"
                if close
                else f"create it with `veen context add {quote(name)} --hub URL`"
                if not self.named
                else "see `veen context list`"
            )
            raise CommandFailed(f"there is no context '{name}'", Exit.USAGE, action) from None


def path() -> Path:
    """Return the file in which contexts are kept."""
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
        raise CommandFailed(
            f"{path()} is not a list of contexts", Exit.USAGE, "repair it, or remove it"
        ) from None


def _context(value: dict[str, Any]) -> SavedContext:
    return SavedContext(**{key: str(value[key]) for key in KEYS if key in value})


def save(contexts: Contexts) -> None:
    from veen_hub.client import replace_file  # noqa: PLC0415 - reading contexts must not load the client

    target = path()
    named = {name: context.as_dict() for name, context in sorted(contexts.named.items())}
    text = json.dumps({"current": contexts.current, "contexts": named}, indent=2, ensure_ascii=False)
    replace_file(target, f"{text}\n".encode(), shared=True)


def current_name(contexts: Contexts) -> str | None:
    """Return the name from ``--context`` or ``VEEN_CONTEXT``, else the one that ``veen context use`` set."""
    running = click.get_current_context(silent=True)
    chosen = running.find_root().params.get("context") if running is not None else None
    return chosen or contexts.current


def current_context() -> SavedContext:
    """Return the context to use for this command; an empty one if none is chosen."""
    contexts = load()
    name = current_name(contexts)
    return contexts.get(name) if name else SavedContext()


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def value_or_context(name: str, given: str | None) -> str | None:
    """Return the value of a flag (click has read its variable already), else the context's.

    A value of the context that ``--context`` names has precedence over a variable, so that the flag selects
    the hub even in a shell where VEEN_HUB is set.
    """
    if given == "":
        raise click.UsageError(f"{flag(name)} is empty: a shell variable may be unset.")
    if given is None or _context_flag_overrides(name):
        found: str | None = getattr(current_context(), name)
        return given if found is None else found
    return given


def _context_flag_overrides(name: str) -> bool:
    """Whether ``--context`` was typed, and the value of this option is a variable's."""
    running = click.get_current_context(silent=True)
    return (
        running is not None
        and running.find_root().get_parameter_source("context") is ParameterSource.COMMANDLINE
        and running.get_parameter_source(name) is ParameterSource.ENVIRONMENT
    )


def required_value(name: str, given: str | None) -> str:
    """Return the value of a flag, else the context's; raise a usage error if there is none."""
    value = value_or_context(name, given)
    if value is None:
        variable = f"VEEN_{name.upper()}"
        raise click.UsageError(
            f"{flag(name)} is missing: give it, set {variable}, or use a context that has it."
        )
    return value


def parse_trust(text: str | None) -> str | None:
    """Check a ``--trust`` value: the hub_id or first hub_pk in 64 hex digits, or ``first`` (core §8.4)."""
    if text is None or text == FIRST:
        return text
    found = text.strip().lower()
    if _PIN.fullmatch(found) is None:
        raise click.UsageError(
            f"--trust {text} is neither 64 hex digits (the hub's hub_id or first hub_pk, shown by "
            "`veen hub keys`) nor 'first'."
        )
    return found


OTHER_SCHEMES: Final = ("h3", "nats", "tls", "file")
"""Schemes of addresses that only the client understands (ADR 0031)."""


def parse_hub_url(text: str, name: str = "--hub") -> str:
    """Check a hub's address, of any transport for ``--hub``, else an http(s) URL; ``name`` is the option."""
    schemes = ("http", "https", *(OTHER_SCHEMES if name == "--hub" else ()))
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in schemes and (parts.hostname or parts.scheme == "file") and parts.port != 0
        has_login = parts.scheme in OTHER_SCHEMES and parts.username is not None
    except ValueError:  # the port is not a number, or brackets do not match
        is_url = has_login = False
    if not is_url:
        raise click.UsageError(f"{name} {text} is not an address like https://hub.example:8080.")
    if has_login:
        raise click.UsageError(
            f"{name}: an address with a password would be stored and shown; present a client certificate "
            "(--cert and --cert-key), or use the Python client."
        )
    return text
