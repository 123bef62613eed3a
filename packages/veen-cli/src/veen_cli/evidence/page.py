"""``veen verify --page``: the verifier page with evidence inside, for a reader who has nothing installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from veen_cli.arguments.object_files import write_new
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import plural
from veen_hub.web.verifier_page import MAX_EVIDENCE_BYTES, page_with_evidence


def write_page(page: Path, names: Iterable[str], hub_id: str | None, policy: Path | None) -> str:
    """Write the page with the named files and folders inside; return a line that says so."""
    evidence: dict[str, bytes] = {}
    size = 0
    for shown, path in _files(names):
        size += path.stat().st_size
        if size > MAX_EVIDENCE_BYTES:
            raise CommandFailed(
                f"{path} and the files before it have more than {MAX_EVIDENCE_BYTES} bytes: a page is full",
                Exit.USAGE,
                "give fewer files, or send the files together with verify.html",
            )
        evidence[_unused(shown, evidence)] = path.read_bytes()
    text = policy.read_text() if policy is not None else None
    content = page_with_evidence(evidence, hub_id=hub_id, policy=text)
    write_new(page, content)
    return f"wrote {page}: the verifier page with {plural(len(evidence), 'file')} ({len(content)} bytes)"


def _files(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield each file with the name that the page shows: without the folders above what was named."""
    for name in names:
        path = Path(name)
        if name == "-":
            raise CommandFailed("a page needs files by name", Exit.USAGE, "write stdin to a file first")
        if not path.is_dir():
            yield path.name, path
            continue
        for each in sorted(path.rglob("*")):
            if each.is_file():
                yield f"{path.resolve().name}/{each.relative_to(path)}", each


def _unused(name: str, taken: Iterable[str]) -> str:
    """Return the name, or the name with a number if another file has it."""
    number, chosen = 2, name
    while chosen in taken:
        number, chosen = number + 1, f"{number}-{name}"
    return chosen
