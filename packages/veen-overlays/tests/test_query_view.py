"""The query view is bound to the logs it rests on, and a damaged one is noticed (core §11.3, P13)."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from memory_log import HUB, READER_SECRET
from recorder_logs import HUB_ID, NOON, Logs, RecorderLog, event, feed_of, opener

from veen_core import Entry, Label, MmrRoot, Receipt, SigningKey, SigningSeed, StreamSeq, verify_inclusion
from veen_core.errors import DivergenceError, StateError, VeenError
from veen_core.ids import ClientId, Epoch, UnixTime
from veen_core.receipt import sign_receipt
from veen_core.rejection import Code
from veen_overlays.live.query_view import DamagedViewError, DuckDbEngine, QueryView, ViewFollower
from veen_overlays.live.query_view.feed.opened_entries import EntryOpener
from veen_overlays.live.query_view.files import compaction, data_files, merging
from veen_overlays.live.query_view.files.subject_filter import may_contain, subject_filter
from veen_overlays.query import canonical_json
from veen_overlays.query.engine import Budget, QueryAnswer, QueryEngine
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.query.plain_engine import PlainEngine
from veen_overlays.query.request.descriptor import normalise
from veen_overlays.query.scope_sources import empty_prefix
from veen_overlays.recorder.records import sign_continuity

STREAM = "record/app/http"
DAY = 86_400


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def log_of(count: int, stream: str = STREAM) -> RecorderLog:
    log = RecorderLog(stream)
    for n in range(count):
        log.record(event(n))
    return log


def caught_up(folder: Path, *logs: RecorderLog) -> QueryView:
    view = QueryView.open(folder)
    run(ViewFollower(view, [feed_of(log) for log in logs]).catch_up())
    return view


async def settled(view: QueryView, log: RecorderLog) -> None:
    """Read the log to its end and merge files, as a follower that has nothing else to do."""
    follower = ViewFollower(view, [feed_of(log)])
    await follower.catch_up()
    await follower.settle()


def everything(view: QueryView, **changes: Any) -> QueryAnswer:
    """All rows of the stream, with the prefixes that the view has now."""
    item = {"scope": [STREAM], "filter": {}, "projection": ["*"], "evidence": {"mode": "full"}, **changes}
    descriptor = normalise(item, new_query_id="q-1")
    engine = DuckDbEngine(view, {STREAM: HUB_ID})
    try:
        return engine.execute(descriptor, engine.prefixes([STREAM]))
    finally:
        engine.close()


def expected(log: RecorderLog, **changes: Any) -> QueryAnswer:
    item = {"scope": [STREAM], "filter": {}, "projection": ["*"], "evidence": {"mode": "full"}, **changes}
    descriptor = normalise(item, new_query_id="q-1")
    plain = PlainEngine([log.source()])
    return plain.execute(descriptor, plain.prefixes([STREAM]))


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# --- keeping up


def test_a_reopened_view_reads_only_entries_that_are_new(tmp_path: Path) -> None:
    log = log_of(30)
    caught_up(tmp_path, log).close()
    for n in range(30, 40):
        log.record(event(n))
    log.read = 0
    with caught_up(tmp_path, log) as view:
        assert log.read == 10
        assert everything(view) == expected(log)


def test_a_view_whose_log_was_rolled_back_or_rewritten_is_refused(tmp_path: Path) -> None:
    log = log_of(9)
    caught_up(tmp_path, log).close()
    other = RecorderLog(STREAM)
    for n in range(9):
        other.record(event(n + 1))
    for changed in (log_of(8), other):
        with QueryView.open(tmp_path) as view, pytest.raises(DivergenceError) as caught:
            run(ViewFollower(view, [feed_of(changed)]).open())
        assert caught.value.held == log.entries[-1].receipt_bytes


def test_an_entry_is_not_opened_before_its_root_is_verified(tmp_path: Path) -> None:
    log = log_of(3)
    receipt = log.entries[2].receipt
    forged = sign_receipt(
        HUB,
        Receipt(
            label=receipt.label,
            stream_seq=receipt.stream_seq,
            leaf_hash=receipt.leaf_hash,
            mmr_root=MmrRoot(bytes(32)),
            hub_ts=receipt.hub_ts,
        ),
    )
    log.entries[2] = Entry(log.label, StreamSeq(3), log.entries[2].msg_bytes, forged.encode())
    opened: list[int] = []

    class Watched(EntryOpener):
        def open(self, entry: Entry) -> Any:
            opened.append(entry.stream_seq)
            return super().open(entry)

    feed = feed_of(log, opener=Watched(keys=opener().keys, origins={}))
    with QueryView.open(tmp_path) as view, pytest.raises(DivergenceError):
        run(ViewFollower(view, [feed]).catch_up())
    assert opened == [1, 2]


def test_a_follower_adds_entries_as_they_appear(tmp_path: Path) -> None:
    async def check() -> None:
        log = log_of(2)
        with QueryView.open(tmp_path) as view:
            following = asyncio.create_task(ViewFollower(view, [feed_of(log)]).follow())
            for size in (2, 3, 4):
                while not (sources := view.sources()) or sources[0].size < size:
                    await asyncio.wait([following], timeout=0.01)
                    assert not following.done(), following.exception()
                if size < 4:
                    log.record(event(size))
                    async with log._grown:
                        log._grown.notify_all()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    run(check())


class _NotFound(VeenError):  # noqa: N818 - the client's name
    """As the hub's client raises it for an entry whose payload was pruned."""

    code = Code.NOT_FOUND

    def __init__(self, stream_seq: int | None) -> None:
        super().__init__("pruned")
        self.stream_seq = stream_seq


class PrunedLog(RecorderLog):
    """A log whose first entries were pruned."""

    pruned = 0

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:
        if from_seq <= self.pruned:
            raise _NotFound(self.pruned + 1 if self.pruned < len(self.entries) else None)
        return await super().page(label, from_seq, max_items)


@pytest.mark.parametrize("pruned", [3, 8])
def test_pruned_entries_have_rows_that_coverage_counts(tmp_path: Path, pruned: int) -> None:
    log = PrunedLog(STREAM)
    for n in range(8):
        log.record(event(n))
    log.pruned = pruned
    with caught_up(tmp_path, log) as view:
        (source,) = everything(view).coverage
        assert (source.scanned, source.opened, source.pruned) == (8, 8 - pruned, pruned)
        assert source.mmr_root == log.mmr.root


def test_labels_of_epochs_are_sources_of_their_own_and_closed_ones_are_not_read_again(tmp_path: Path) -> None:
    logs = {n: RecorderLog(STREAM, epoch=n) for n in (3, 5, 6)}
    for n, log in logs.items():
        log.now = UnixTime(NOON + n)
        for k in range(n):
            log.record(event(k))

    class Window:
        now = range(5, 7)
        since = Epoch(2)

        def label_of(self, epoch: Epoch) -> Label:
            return RecorderLog(STREAM, epoch=epoch).label

        def window(self) -> range:
            return self.now

        async def confirmed(self) -> range:
            return self.now

        async def forget(self, label: Label) -> None: ...

    epochs, reader = Window(), Logs(*logs.values())
    feed = feed_of(logs[3], labels=epochs, reader=reader)
    with QueryView.open(tmp_path) as view:
        run(ViewFollower(view, [feed]).catch_up())
        assert [(p.epoch, p.to_seq) for p in DuckDbEngine(view, {STREAM: HUB_ID}).prefixes([STREAM])] == [
            (3, 3),
            (5, 5),
            (6, 6),
        ]
        assert len(everything(view).rows) == 14
    logs[3].read = 0
    with QueryView.open(tmp_path) as view:
        run(ViewFollower(view, [feed]).catch_up())
        assert logs[3].read == 0


def test_a_key_that_the_log_links_attributes_later_events_also_after_a_restart(tmp_path: Path) -> None:
    person, log = SigningKey(SigningSeed(b"\x61" * 32)), RecorderLog(STREAM)
    principal = ClientId(person.public)
    log.record(event(1, principal_id=principal))
    log.append(log.seal(sign_continuity(person, ClientId(log.writer.public))))
    log.record(event(2, principal_id=principal))
    caught_up(tmp_path, log).close()
    log.record(event(3, principal_id=principal))
    log.record(event(4))
    with caught_up(tmp_path, log) as view:
        assert [row["attributed"] for row in everything(view).rows] == [False, True, True, False]


# --- files


def test_files_belong_to_their_owner_only_and_hold_no_key(tmp_path: Path) -> None:
    folder = tmp_path / "view"
    before = os.umask(0)
    try:
        with caught_up(folder, log_of(20)) as view:
            everything(view)
            for path in folder.rglob("*"):
                wanted = 0o700 if path.is_dir() else 0o600
                assert stat.S_IMODE(path.stat().st_mode) == wanted, path
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            for path in files_of(folder):
                content = path.read_bytes()
                assert bytes(READER_SECRET) not in content
                assert bytes(READER_SECRET).hex().encode() not in content
    finally:
        os.umask(before)


def test_two_processes_cannot_use_one_view(tmp_path: Path) -> None:
    with QueryView.open(tmp_path), pytest.raises(StateError, match="another process uses this view"):
        QueryView.open(tmp_path)


def _is_data(path: Path) -> bool:
    return path.name not in ("lock",)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_file_is_noticed_and_the_view_is_rebuilt(tmp_path: Path, damage: str) -> None:
    log = log_of(25)
    caught_up(tmp_path, log).close()
    for path in filter(_is_data, files_of(tmp_path)):
        intact = path.read_bytes()
        if damage == "remove" and path.name == "manifest":
            continue  # then the view is new
        match damage:
            case "flip":
                at = len(intact) // 2
                path.write_bytes(intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
            case "cut":
                path.write_bytes(intact[:-1])
            case _:
                path.unlink()
        if damage == "flip" and path.parent.parent.name == "nodes":
            continue  # an inner node: noticed when a proof does not verify, see below
        with pytest.raises(DamagedViewError, match="rebuild the view"):
            QueryView.open(tmp_path)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(intact)
    with QueryView.open(tmp_path, rebuild=True) as view:
        run(ViewFollower(view, [feed_of(log)]).catch_up())
        assert everything(view) == expected(log)


def test_a_file_that_is_altered_while_the_view_is_open_fails_the_query(tmp_path: Path) -> None:
    with caught_up(tmp_path, log_of(25)) as view:
        everything(view)
        (path,) = tmp_path.rglob("*.parquet")
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(bytes(content))
        with pytest.raises(QueryError, match="does not have the hash") as caught:
            everything(view)
        assert caught.value.code == QueryErrorCode.EXECUTION_FAILED


def test_every_inclusion_proof_of_a_view_verifies_and_a_changed_node_fails(tmp_path: Path) -> None:
    log = log_of(21)
    with caught_up(tmp_path, log) as view, view.snapshot() as snapshot:
        for size in (1, 8, 13, 21):
            prefix = log.prefix(size)
            snapshot.source(prefix)
            for seq in range(1, size + 1):
                proof = snapshot.prove(prefix, seq)
                leaf = log.entries[seq - 1].receipt.leaf_hash
                assert prefix.mmr_root is not None
                verify_inclusion(proof, prefix.mmr_root, StreamSeq(seq), leaf, size)
        (path,) = (tmp_path / "nodes").rglob("*-*")
        content = bytearray(path.read_bytes())
        content[0] ^= 1
        path.write_bytes(bytes(content))
        with pytest.raises(VeenError):
            snapshot.prove(log.prefix(), 2)


def test_a_prefix_with_another_root_is_not_answered(tmp_path: Path) -> None:
    other = RecorderLog(STREAM)
    for n in range(5):
        other.record(event(n + 1))
    with caught_up(tmp_path, log_of(9)) as view:
        engine = DuckDbEngine(view, {STREAM: HUB_ID})
        descriptor = normalise(
            {"scope": [STREAM], "filter": {}, "projection": ["*"], "evidence": {"mode": "none"}},
            new_query_id="q-1",
        )
        for prefix in (other.prefix(), log_of(10).prefix()):
            with pytest.raises(QueryError) as caught:
                engine.execute(descriptor, [prefix])
            assert caught.value.code == QueryErrorCode.EXECUTION_FAILED
        engine.close()


def test_the_number_of_files_stays_bounded_and_merging_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "TIER_ROWS", 4)
    monkeypatch.setattr(merging, "MAX_FILE_ROWS", 128)
    log = RecorderLog(STREAM)
    with QueryView.open(tmp_path) as view:
        follower = ViewFollower(view, [feed_of(log)])
        most = 0
        for n in range(100):
            log.now = UnixTime(NOON + n * DAY // 50)  # two days and a bit
            log.record(event(n))
            run(follower.catch_up())
            most = max(most, len(list(tmp_path.rglob("*.parquet"))))
        assert most <= 7 * 3 + 3 * 2
        assert everything(view) == expected(log)
        assert len(list(tmp_path.rglob("*.subjects"))) == len(list(tmp_path.rglob("*.parquet")))


def test_a_subject_filter_misses_no_subject_and_excludes_most_others() -> None:
    subjects = [f"user:{n}" for n in range(2_000)]
    bits = subject_filter(subjects)
    assert all(may_contain(bits, subject) for subject in subjects)
    assert sum(may_contain(bits, f"other:{n}") for n in range(2_000)) < 100
    assert not may_contain(subject_filter([]), "")
    assert may_contain(subject_filter([""]), "")


def test_a_query_for_one_subject_opens_only_files_that_may_have_it(tmp_path: Path) -> None:
    log = RecorderLog(STREAM)
    with QueryView.open(tmp_path) as view:
        for n in range(5):
            log.record(event(subject_id=f"user:{n}"))
            run(ViewFollower(view, [feed_of(log)]).catch_up())
        with view.snapshot() as snapshot:
            assert len(snapshot.files(STREAM)) == 5
            assert len(snapshot.files(STREAM, subject="user:3")) == 1
            assert snapshot.files(STREAM, types=["logout"]) == []
            assert snapshot.files(STREAM, times=(1000 * (NOON + DAY), None)) == []
        assert len(everything(view, filter={"subject_id": "user:3"}).rows) == 1


def test_runs_of_many_files_merge_into_one_order_and_every_prefix_answers_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subject may fill several files, and rows without a subject are the last."""
    monkeypatch.setattr(compaction, "TIER_ROWS", 4)
    monkeypatch.setattr(compaction, "RUNS_PER_MERGE", 3)
    monkeypatch.setattr(merging, "MAX_FILE_ROWS", 10)
    monkeypatch.setattr(merging, "ROW_GROUP_ROWS", 3)
    log = RecorderLog(STREAM)
    with QueryView.open(tmp_path) as view:
        for n in range(90):
            log.record(event(n, subject_id="user:ann" if n % 2 else f"user:{n * 7 % 11}"))
            if n % 9 == 0:
                log.other()
            if n % 5 == 0:
                run(settled(view, log))
        run(settled(view, log))
        with view.snapshot() as snapshot:
            assert max(len(each.files) for each in compaction.runs_of(snapshot.files(STREAM))) > 5
        assert everything(view) == expected(log)
        engine, plain = DuckDbEngine(view, {STREAM: HUB_ID}), PlainEngine([log.source()])
        for filter_ in ({}, {"subject_id": "user:ann"}, {"subject_id": "user:4"}):
            descriptor = normalise(
                {"scope": [STREAM], "filter": filter_, "projection": ["*"], "evidence": {"mode": "full"}},
                new_query_id="q-1",
            )
            for size in (1, 37, 64, len(log.entries)):
                prefixes = [log.prefix(size)]
                assert engine.execute(descriptor, prefixes) == plain.execute(descriptor, prefixes)
        engine.close()


def test_one_subject_of_a_busy_day_costs_about_as_many_bytes_as_one_of_a_quiet_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No full scans (core 11.2): the bytes that a query reads do not grow with the events of the day."""
    monkeypatch.setattr(compaction, "TIER_ROWS", 16)
    monkeypatch.setattr(merging, "MAX_FILE_ROWS", 256)
    monkeypatch.setattr(merging, "ROW_GROUP_ROWS", 32)
    monkeypatch.setattr(data_files, "ROW_GROUP_ROWS", 32)
    log, read = RecorderLog(STREAM), {}
    with QueryView.open(tmp_path) as view:
        for n in range(2_048):
            log.record(event(n, subject_id=f"user:{n * 7 % (256 if n < 256 else 1_792)}"))
            if n % 64 == 63:
                run(settled(view, log))
            if n in (255, 2_047):
                before = bytes_read()
                assert everything(view, filter={"subject_id": "user:7"}, evidence={"mode": "none"}).rows
                read[n] = bytes_read() - before
        stored = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert read[2_047] <= 2 * read[255], read
    assert read[2_047] <= stored / 10, read


def bytes_read() -> int:
    """What this process has read from files so far."""
    with Path("/proc/self/io").open() as counters:
        return int(next(line for line in counters if line.startswith("rchar:")).split()[1])


def test_a_file_that_is_altered_while_the_view_is_open_is_not_merged_into_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "RUNS_PER_MERGE", 2)
    log = log_of(3)
    with caught_up(tmp_path, log) as view:
        (path,) = tmp_path.rglob("*.parquet")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
        log.record(event(3))
        with pytest.raises(DamagedViewError, match="does not have the hash"):
            run(ViewFollower(view, [feed_of(log)]).catch_up())


def test_a_snapshot_keeps_its_files_while_they_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "RUNS_PER_MERGE", 2)
    log = log_of(3)
    with caught_up(tmp_path, log) as view:
        with view.snapshot() as snapshot:
            held = snapshot.paths(snapshot.files(STREAM))
            log.record(event(3))
            run(ViewFollower(view, [feed_of(log)]).catch_up())
            assert all(Path(path).exists() for path in held)
        assert not any(Path(path).exists() for path in held)


def test_the_manifest_names_the_streams_that_were_read_to_their_ends(tmp_path: Path) -> None:
    """So another engine that reads the folder knows that a stream has no entries (P13)."""
    with caught_up(tmp_path, log_of(1), log_of(0, "record/app/none")) as view, view.snapshot() as snapshot:
        homes = [(home.stream, home.hub_id) for home in snapshot.index.manifest.homes]
        assert homes == [(STREAM, HUB_ID), ("record/app/none", HUB_ID)]


def test_a_follower_that_is_cancelled_ends_when_nobody_writes_the_view_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the lock of the view is free while a thread still commits."""
    begun, may_end = threading.Event(), threading.Event()
    real = QueryView.commit

    def commit(view: QueryView) -> None:
        begun.set()
        assert may_end.wait(60)
        real(view)

    async def work(view: QueryView) -> None:
        reading = asyncio.create_task(ViewFollower(view, [feed_of(log_of(3))]).catch_up())
        await asyncio.to_thread(begun.wait, 60)
        reading.cancel()
        for _ in range(10):  # turns of the event loop
            await asyncio.sleep(0)
        assert not reading.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert not view.has_changes, "the commit has ended"

    monkeypatch.setattr(QueryView, "commit", commit)
    with QueryView.open(tmp_path) as view:
        run(work(view))


# --- limits of a query


def test_a_query_stops_when_its_budget_says_so(tmp_path: Path) -> None:
    descriptor = normalise(
        {"scope": [STREAM], "filter": {}, "projection": ["*"], "evidence": {"mode": "none"}},
        new_query_id="q-1",
    )
    with caught_up(tmp_path, log_of(20)) as view:
        engine = DuckDbEngine(view, {STREAM: HUB_ID})
        prefixes = engine.prefixes([STREAM])
        for budget in (Budget(stop=lambda: True), Budget(max_rows=19), Budget(max_matched=19)):
            with pytest.raises(QueryError) as caught:
                engine.execute(descriptor, prefixes, budget)
            assert caught.value.code == QueryErrorCode.LIMIT_EXCEEDED
        engine.close()


def test_a_query_ends_when_its_rows_have_more_bytes_than_its_budget(tmp_path: Path) -> None:
    descriptor = normalise(
        {"scope": [STREAM], "filter": {}, "projection": ["*"], "evidence": {"mode": "none"}},
        new_query_id="q-1",
    )
    log = log_of(20)
    with caught_up(tmp_path, log) as view:
        embedded, plain = DuckDbEngine(view, {STREAM: HUB_ID}), PlainEngine([log.source()])
        engines: tuple[QueryEngine, ...] = embedded, plain
        for engine in engines:
            prefixes = engine.prefixes([STREAM])
            rows = engine.execute(descriptor, prefixes).rows
            size = sum(len(canonical_json.encode(row)) + 1 for row in rows)
            assert engine.execute(descriptor, prefixes, Budget(max_bytes=size)).rows == rows
            with pytest.raises(QueryError, match=f"more than {size - 1} bytes") as caught:
                engine.execute(descriptor, prefixes, Budget(max_bytes=size - 1))
            assert caught.value.code == QueryErrorCode.LIMIT_EXCEEDED
        embedded.close()


def test_an_unknown_stream_is_refused_and_one_without_entries_is_not(tmp_path: Path) -> None:
    with QueryView.open(tmp_path) as view:
        engine = DuckDbEngine(view, {STREAM: HUB_ID})
        assert engine.prefixes([STREAM]) == (empty_prefix(STREAM, HUB_ID),)
        with pytest.raises(QueryError) as caught:
            engine.prefixes(["record/app/other"])
        assert caught.value.code == QueryErrorCode.FORBIDDEN_SCOPE
        engine.close()
    with QueryView.open(tmp_path) as view:
        assert everything(view).rows == []
