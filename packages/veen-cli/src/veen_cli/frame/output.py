"""What a command says: one object for a program, lines for a person, progress for whoever waits."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from veen_cli.frame.exits import Exit

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

PATIENCE: Final = 1.0
"""Seconds before a progress bar appears."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``data`` is printed with ``--json``; ``lines`` otherwise. The keys of ``data`` are an interface."""

    data: Mapping[str, Any]
    lines: Iterable[str] = ()


CONTINUED: Final = " " * 8
_HARMFUL: Final = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (
        *range(9),
        *range(11, 32),
        *range(127, 160),
        *(0x200E, 0x200F),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    )
} | {10: "\n" + CONTINUED}
"""Control characters and those that turn the direction of text; a new line is indented."""


def harmless(text: str) -> str:
    """Text that somebody else wrote, for a terminal: it cannot move the cursor or look like another line."""
    return text.translate(_HARMFUL)


def silenced() -> Exit:
    """Whoever read stdout has left: nothing more goes there, or Python complains at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return Exit.PIPE


def json_text(data: Mapping[str, Any]) -> str:
    """One line; escaped where stdout cannot write every character, so that none is lost."""
    whole = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return json.dumps(data, ensure_ascii=not whole)


def fields(rows: Mapping[str, object]) -> list[str]:
    """Names and values, aligned; a value of None is left out."""
    told = {name: value for name, value in rows.items() if value is not None}
    width = max(map(len, told), default=0)
    return [f"{name:<{width}}  {value}" for name, value in told.items()]


@dataclass(slots=True)
class Progress:
    """Counts, or only waits; shows a bar once it has lasted, if somebody watches."""

    what: str
    total: int | None
    watched: bool
    counted: Callable[[], int] | None = None
    """Asked how far it is, where nobody tells."""
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    done: int = 0
    _bar: Bar | None = None
    _timer: threading.Timer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """A timer shows the bar, not the work: what lasts may not come by here for a while."""
        if self.watched:
            self._timer = threading.Timer(PATIENCE, self._show)
            self._timer.daemon = True
            self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if self.ended is None:
                self._bar = _make_bar(self)
                self._bar.start()

    def advance(self, by: int = 1) -> None:
        self.to(self.done + by)

    def to(self, done: int, total: int | None = None) -> None:
        self.done, self.total = done, total if total is not None else self.total
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, total=self.total)

    @property
    def seconds(self) -> float:
        """Until now, or until it was stopped."""
        return (self.ended or time.monotonic()) - self.started

    @property
    def rate(self) -> float:
        """Per second, so far."""
        return self.done / max(1e-9, self.seconds)

    def __str__(self) -> str:
        """How far it is, and how fast."""
        self.done = self.counted() if self.counted is not None else self.done
        if not self.done:
            return ""
        return f"{self.done}{f'/{self.total}' if self.total is not None else ''}  {self.rate:.0f}/s"

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self.ended = time.monotonic()
            if self._bar is not None:
                self._bar.stop()


def _make_bar(progress: Progress) -> Bar:
    # Imported here: rich costs a tenth of a second, and most commands are done before a bar would show.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as RichProgress  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Count(ProgressColumn):
        def render(self, task: Task) -> Text:
            del task
            return Text(str(progress))

    bar = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        Count(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(progress.what, total=progress.total, completed=progress.done)
    return bar


@dataclass(frozen=True, slots=True)
class Output:
    """How to talk, by ``--json`` and ``--quiet``."""

    as_json: bool = False
    quiet: bool = False

    def say(self, answer: Answer) -> None:
        """The command's answer; in full even with ``--quiet`` if ``--json`` asks for it."""
        if self.as_json:
            click.echo(json_text(answer.data))
        elif not self.quiet:
            for line in answer.lines:
                click.echo(harmless(line))

    def object_only(self, data: Mapping[str, Any]) -> None:
        """The object of a command that then fails: for ``--json``; people get the line on stderr."""
        if self.as_json:
            self.say(Answer(data))

    @property
    def for_people(self) -> bool:
        return not self.as_json and not self.quiet

    def tell(self, line: str) -> None:
        """Something on the way, for a person, beside the answer."""
        if self.for_people:
            click.echo(line, err=True)

    @contextmanager
    def progress(
        self, what: str, total: int | None = None, *, counted: Callable[[], int] | None = None
    ) -> Iterator[Progress]:
        """Something that may last; with ``--json`` too: a bar is on stderr. Nothing may be asked inside."""
        progress = Progress(what, total, not self.quiet and sys.stderr.isatty(), counted)
        progress.begin()
        try:
            yield progress
        finally:
            progress.stop()
