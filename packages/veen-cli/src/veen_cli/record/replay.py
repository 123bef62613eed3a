"""``veen record replay``: events by range or time, in order, with receipts and proofs (SDR0 3.2.5)."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from veen_cli.arguments import times
from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.record.checkpointing import read_checkpoint
from veen_cli.record.replays.replay_output import LinesInFile, LinesOnStdout, ParquetFolder, ReplaySink
from veen_cli.record.replays.replaying import (
    LabelRange,
    Sizes,
    Verify,
    merged,
    ranges_by_seq,
    ranges_by_time,
)
from veen_cli.record.replays.resumed_replay import Position
from veen_cli.record.role_file import RoleFile, role_options
from veen_cli.record.session import RecordedLabel, RecorderSession, open_session
from veen_cli.record.validation import compare_with_hub
from veen_core.errors import DivergenceError, VerificationError
from veen_core.ids import Epoch, HubId, Label
from veen_overlays.recorder.checkpoint import RecorderCheckpoint, verify_checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWishes:
    """What to replay."""

    streams: tuple[str, ...]
    from_seq: int | None
    to_seq: int | None
    start: int | None
    end: int | None
    checkpoint: Path | None
    verify: Verify

    def check(self) -> None:
        """Raise a usage error if the options exclude each other."""
        by_seq = self.from_seq is not None or self.to_seq is not None
        if by_seq and (self.start is not None or self.end is not None):
            raise click.UsageError("--from and --upto exclude --since and --until.")
        if by_seq and len(self.streams) != 1:
            raise click.UsageError("--from and --upto need exactly one STREAM.")
        for start, first, end, last in (
            ("--from", self.from_seq, "--upto", self.to_seq),
            ("--since", self.start, "--until", self.end),
        ):
            if first is not None and last is not None and first > last:
                raise click.UsageError(f"{end} is before {start}, so no entry can be in the range.")

    def beyond(self, sizes: Sizes) -> str | None:
        """Return the remark for a range with entries that do not exist."""
        end, wanted = max((size for size, _ in sizes.values()), default=0), self.to_seq or self.from_seq
        if wanted is None or wanted <= end:
            return None
        of = "the checkpoint covers" if self.checkpoint is not None else "the hub has"
        return f"{of} {plural(end, 'entry', 'entries')} of {self.streams[0]}, not {wanted}"


@command(
    "veen record replay record/app/orders --from 1 --upto 100 --config admin/recorder.yaml",
    "veen record replay --since 2026-01-31T12:00 --until 2026-01-31T13:00 --verify full "
    "--checkpoint checkpoints --out replay.jsonl --config admin/recorder.yaml",
    "veen record replay --out replay.jsonl --resume --config admin/recorder.yaml",
)
@click.argument("streams", nargs=-1, metavar="[STREAM…]")
@click.option("--from", "from_seq", type=Integer(1), help="First entry [default: 1].")
@click.option("--upto", "to_seq", type=Integer(1), help="Last entry, included [default: the newest].")
@click.option("--since", "start", type=times.Moment(), help="Earliest hub_commit_time, included.")
@click.option("--until", "end", type=times.Moment(), help="Latest hub_commit_time, included.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, exists=True),
    help="Replay what this checkpoint covers, and prove entries against it; a folder means its newest.",
)
@click.option(
    "--verify",
    type=click.Choice([each.value for each in Verify]),
    default=Verify.NONE.value,
    show_default=True,
    help="Inclusion proofs to fetch and verify: of no entry, of one in 16, of every entry.",
)
@click.option(
    "--out", "-o", "target", type=click.Path(path_type=Path), help="File or folder [default: stdout]."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "parquet"]),
    default="jsonl",
    show_default=True,
    help="JSON lines, or a folder of Parquet files.",
)
@click.option("--resume", is_flag=True, help="Continue the replay in --out where it was interrupted.")
@role_options
def replay(
    out: Output,
    *,
    file: RoleFile,
    target: Path | None,
    form: str,
    resume: bool,
    verify: str,
    **wanted: Any,
) -> Answer | None:
    """Replay the entries of STREAMs, by default of all streams of the recorder, in order.

    Every entry is verified as a reader verifies it: signatures, order and roots. --verify adds inclusion
    proofs. Every entry of the range is a row; its kind says whether it is an event, or unopened, pruned,
    undecodable or another message. The first row names the ranges, the last row counts the rows. If the hub
    does not show an entry, a row of kind missing says so, and the exit code is 3.
    """
    wishes = ReplayWishes(**wanted, verify=Verify(verify))
    wishes.check()
    if form == "parquet" and target is None:
        raise click.UsageError("--format parquet needs --out FOLDER.")
    sink: ReplaySink
    if target is None:
        sink = LinesOnStdout()
    else:
        sink = ParquetFolder(target) if form == "parquet" else LinesInFile(target)
    end = loop.run(_work(out, file, wishes, sink, resume=resume))
    if target is None:
        return None
    counts = ", ".join(f"{count} {kind}" for kind, count in end["kinds"].items()) or "none"
    return Answer({**end, "out": str(target)}, [f"{target}: {plural(end['rows'], 'row')} ({counts})"])


async def _work(
    out: Output, file: RoleFile, wishes: ReplayWishes, sink: ReplaySink, *, resume: bool
) -> dict[str, Any]:
    async with open_session(file) as session:
        header, done = sink.resume(None if resume else await _header(out, session, wishes))
        _check_hub(session, header)
        spans = [_continued(each, done) for each in _spans(header)]
        left = sum(span.entries for span in spans)
        with out.progress("entries", left) as progress:
            try:
                async with aclosing(merged(session, spans, Verify(header["verify"]))) as rows:
                    async for row in rows:
                        sink.write(row)
                        progress.advance()
            except VerificationError as exc:
                sink.fail({"kind": "missing", "why": str(exc), "after": sink.kinds.total()})
                raise
        whole, written = sum(span.entries for span in _spans(header)), sink.kinds.total()
        if written != whole:
            raise CommandFailed(f"{whole} entries were to be replayed, {written} were", Exit.PROTOCOL)
        end = {"kind": "end", "rows": written, "kinds": dict(sorted(sink.kinds.items()))}
        sink.finish(end)
        return end


def _continued(span: LabelRange, done: dict[Position, int]) -> LabelRange:
    return replace(span, done=done.get((span.label.stream, int(span.label.epoch)), 0))


def _check_hub(session: RecorderSession, header: dict[str, Any]) -> None:
    if header["hub_id"] != session.hub.hub_id.hex():
        raise CommandFailed(
            f"the replay was begun at hub {header['hub_id']}", Exit.USAGE, "choose another --out"
        )


async def _header(out: Output, session: RecorderSession, wishes: ReplayWishes) -> dict[str, Any]:
    """The first row: which entries of which labels are replayed, and against which root."""
    labels = await session.labels(session.chosen(wishes.streams))
    found = None
    if wishes.checkpoint is not None:
        found = read_checkpoint(wishes.checkpoint)
        await _check_checkpoint(session, found)
    sizes = await _sizes(session, labels, found)
    if (said := wishes.beyond(sizes)) is not None:
        out.note(said)
    if wishes.start is not None or wishes.end is not None:
        spans = await ranges_by_time(session, labels, sizes, wishes.start or 0, wishes.end)
    else:
        spans = ranges_by_seq(labels, sizes, wishes.from_seq or 1, wishes.to_seq)
    return {
        "kind": "replay",
        "hub_id": session.hub.hub_id.hex(),
        "profile_id": session.profile.profile_id.hex(),
        "verify": wishes.verify.value,
        "checkpoint": found.checkpoint.decode() if found is not None else None,
        "ranges": [_range_dict(span) for span in spans],
    }


async def _check_checkpoint(session: RecorderSession, found: RecorderCheckpoint) -> None:
    verify_checkpoint(found, pinned=HubId.from_hex(session.file.access.trust))
    for finding in await compare_with_hub(session, found, full=False):
        if finding.fault is not None:
            raise DivergenceError(
                f"stream {finding.stream} contradicts the checkpoint: {finding.fault}", held=found.checkpoint
            )


async def _sizes(
    session: RecorderSession, labels: list[RecordedLabel], found: RecorderCheckpoint | None
) -> Sizes:
    sizes: dict[Label, tuple[int, str]] = {}
    reader = session.hub.log_reader()
    for each in labels:
        if found is not None:
            head = found.heads[each.label].head if each.label in found.heads else None
            sizes[each.label] = (head.upto_seq, head.mmr_root.hex()) if head is not None else (0, "")
        else:
            receipt = await reader.head(each.label)
            sizes[each.label] = (receipt.stream_seq, receipt.mmr_root.hex()) if receipt else (0, "")
    return sizes


def _range_dict(span: LabelRange) -> dict[str, Any]:
    return {
        "stream": span.label.stream,
        "position": span.label.position,
        "epoch": int(span.label.epoch),
        "label": span.label.label.hex(),
        "from_seq": span.first,
        "to_seq": span.last,
        "tree_size": span.tree_size,
        "mmr_root": span.root,
    }


def _spans(header: dict[str, Any]) -> list[LabelRange]:
    return [
        LabelRange(
            label=RecordedLabel(
                stream=each["stream"],
                position=each["position"],
                epoch=Epoch(each["epoch"]),
                label=Label.from_hex(each["label"]),
            ),
            first=each["from_seq"],
            last=each["to_seq"],
            tree_size=each["tree_size"],
            root=each["mmr_root"],
        )
        for each in header["ranges"]
    ]
