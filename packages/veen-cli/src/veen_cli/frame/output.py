"""Output of a command: one JSON object for a program, lines for a person, progress on stderr."""

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

PROGRESS_DELAY_SECONDS: Final = 1.0
"""A progress bar appears only if the work takes longer than this."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: ``data`` for ``--json``, ``lines`` for a person.

    The keys of ``data`` are an interface for scripts. With an ``exit_code`` other than 0 the command has
    finished, but its result is negative: a verification found faults, say.
    """

    data: Mapping[str, Any]
    lines: Iterable[str] = ()
    exit_code: int = Exit.OK


CONTINUATION: Final = " " * 8
_ESCAPES: Final = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (
        *range(9),
        *range(11, 32),
        *range(127, 160),
        *(0x200E, 0x200F),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    )
} | {10: "\n" + CONTINUATION}
"""Control characters and characters that change the direction of text; after a newline, indent."""


def escape_controls(text: str) -> str:
    """Escape text of unknown origin for a terminal: it cannot move the cursor or imitate another line."""
    return text.translate(_ESCAPES)


def discard_stdout() -> Exit:
    """Send the rest of stdout to ``/dev/null``: its reader has ended, which Python would report at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return Exit.PIPE


def json_text(data: Mapping[str, Any]) -> str:
    """Return one line of JSON; escape non-ASCII characters unless stdout is UTF-8, so that none is lost."""
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return json.dumps(data, ensure_ascii=not is_utf8)


def fields(rows: Mapping[str, object]) -> list[str]:
    """Return lines of names and values, aligned; rows with the value None are left out."""
    present = {name: value for name, value in rows.items() if value is not None}
    width = max(map(len, present), default=0)
    return [f"{name:<{width}}  {value}" for name, value in present.items()]


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """Return the count with its noun: "1 checkpoint", "2 checkpoints"."""
    from veen_core.plural import plural as plural_of  # noqa: PLC0415 - `veen --help` loads no veen_core

    return plural_of(count, noun, plural_noun)


@dataclass(slots=True)
class Progress:
    """A count of work done, shown as a bar if the work takes long and stderr is a terminal."""

    what: str
    total: int | None
    visible: bool
    counted: Callable[[], int] | None = None
    """Returns the count, for work that does not call ``advance``."""
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    done: int = 0
    _bar: Bar | None = None
    _timer: threading.Timer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Start a timer thread that shows the bar, because the work may block this thread."""
        if self.visible:
            self._timer = threading.Timer(PROGRESS_DELAY_SECONDS, self._show)
            self._timer.daemon = True
            self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if self.ended is None:
                self._bar = _make_bar(self)
                self._bar.start()

    def advance(self, by: int = 1) -> None:
        self.update(self.done + by)

    def update(self, done: int, total: int | None = None) -> None:
        self.done, self.total = done, total if total is not None else self.total
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, total=self.total)

    @property
    def seconds(self) -> float:
        """Seconds from the start until the end, or until now."""
        return (self.ended or time.monotonic()) - self.started

    @property
    def rate(self) -> float:
        """Units per second so far."""
        return self.done / max(1e-9, self.seconds)

    def __str__(self) -> str:
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
    # Imported here: rich takes 0.1 s to import, and most commands end before a bar appears.
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
    """The form of a command's output, as ``--json`` and ``--quiet`` choose it."""

    as_json: bool = False
    quiet: bool = False

    def print_answer(self, answer: Answer) -> None:
        """Print the answer on stdout; ``--quiet`` omits the lines, never the JSON object."""
        if self.as_json:
            click.echo(json_text(answer.data))
        elif not self.quiet:
            for line in answer.lines:
                click.echo(escape_controls(line))

    def print_json_only(self, data: Mapping[str, Any]) -> None:
        """Print the object of a command that then fails; without ``--json`` only the error is printed."""
        if self.as_json:
            self.print_answer(Answer(data))

    @property
    def for_people(self) -> bool:
        """Whether neither ``--json`` nor ``--quiet`` was given."""
        return not self.as_json and not self.quiet

    def note(self, line: str) -> None:
        """Print a remark for a person on stderr."""
        if self.for_people:
            click.echo(line, err=True)

    @contextmanager
    def progress(
        self, what: str, total: int | None = None, *, counted: Callable[[], int] | None = None
    ) -> Iterator[Progress]:
        """Show progress on stderr, also with ``--json``; do not prompt inside this block."""
        progress = Progress(what, total, not self.quiet and sys.stderr.isatty(), counted)
        progress.begin()
        try:
            yield progress
        finally:
            progress.stop()
