"""Where ``status`` and ``evidence`` read a witness: its folder, or its address."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from veen_cli.arguments.tls_files import load_tls
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.witness.run import dir_option
from veen_core.errors import DecodeError
from veen_hub.witness.config import load
from veen_hub.witness.contradiction import LogContradiction
from veen_hub.witness.description import describe
from veen_hub.witness.folder import WitnessFolder
from veen_hub.witness.state import WitnessState

TIMEOUT_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 64 * 1_048_576


class ReadableWitness(ABC):
    """A witness that can be read."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the logs of the witness (``veen_hub.witness.description``)."""

    @abstractmethod
    def contradiction(self, id_: str) -> LogContradiction:
        """Return one contradiction that ``describe`` lists."""


class FolderSource(ReadableWitness):
    """The folder of a witness, which may be running."""

    def __init__(self, state: WitnessState, description: dict[str, Any]) -> None:
        self._state = state
        self._description = description

    def describe(self) -> dict[str, Any]:
        return self._description

    def contradiction(self, id_: str) -> LogContradiction:
        return next(kept[id_].found for kept in self._state.contradictions.values() if id_ in kept)


class UrlSource(ReadableWitness):
    """A running witness."""

    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        self._url = url.rstrip("/")
        self._context = context

    def describe(self) -> dict[str, Any]:
        try:
            found = json.loads(self._get("/logs"))
        except ValueError:
            found = None
        if not isinstance(found, dict) or "witness" not in found or "logs" not in found:
            raise self._foreign("/logs")
        return found

    def contradiction(self, id_: str) -> LogContradiction:
        try:
            return LogContradiction.decode(self._get(f"/contradiction/{id_}"))
        except DecodeError:
            raise self._foreign(f"/contradiction/{id_}") from None

    def _get(self, path: str) -> bytes:
        try:
            with urllib.request.urlopen(  # noqa: S310 - the scheme is checked below
                self._url + path, timeout=TIMEOUT_SECONDS, context=self._context
            ) as answer:
                return bytes(answer.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as exc:
            raise CommandFailed(
                f"{self._url}{path}: HTTP {exc.code}", Exit.PROTOCOL, "check that it is a witness's address"
            ) from None
        except (OSError, urllib.error.URLError) as exc:
            why = getattr(exc, "reason", exc)
            raise CommandFailed(
                f"{self._url} does not answer: {why}", Exit.NETWORK, "check the address, and that it runs"
            ) from None

    def _foreign(self, path: str) -> CommandFailed:
        return CommandFailed(
            f"{self._url}{path}: this is not the answer of a VEEN witness", Exit.PROTOCOL, "check the address"
        )


@contextmanager
def open_source(folder: Path | None, url: str | None, ca: Path | None) -> Iterator[ReadableWitness]:
    if (folder is None) == (url is None):
        raise click.UsageError("give the witness's folder with --dir, or its address with --url.")
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise click.UsageError(f"--url {url} is not an address like https://witness.example:8090.")
        tls = load_tls(ca, None, None)
        yield UrlSource(url, tls.context() if tls is not None else None)
        return
    assert folder is not None
    paths = WitnessFolder(folder)
    key = paths.load_key().verifier
    watched = load(paths.config_file, {}).log_keys
    state = WitnessState(paths.state, key)
    try:
        yield FolderSource(state, describe(key, watched, state))
    finally:
        state.close()


def source_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--dir``, ``--url`` and ``--ca``; the command gets the opened ``ReadableWitness``."""

    @wraps(work)
    def run(*args: Any, folder: Path | None, url: str | None, ca: Path | None, **options: Any) -> Any:
        given = click.get_current_context().get_parameter_source("folder")
        if url is not None and given is ParameterSource.ENVIRONMENT:
            folder = None
        with open_source(folder, url, ca) as source:
            return work(*args, source=source, **options)

    found: Callable[..., Any] = run
    for option in (
        click.option(
            "--ca", type=click.Path(path_type=Path, exists=True), help="PEM file of the CA to trust."
        ),
        click.option("--url", help="Address of a running witness, instead of --dir."),
        dir_option(required=False, help_="The witness's folder; the witness may be running."),
    ):
        found = option(found)
    return found
