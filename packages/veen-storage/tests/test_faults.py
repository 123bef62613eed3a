"""Each write, sync, rename, truncate, removal and folder: made to fail, and made to happen and fail.

Afterwards the error is one of ours or the system's own, no receipt of the failed batch was handed out,
what was readable still is, nothing more is acknowledged, and a fresh opening finds everything in order.
"""

from __future__ import annotations

import errno
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from veen_core.hashing import H
from veen_core.ids import Coid, StreamSeq
from veen_storage import store as store_module
from veen_storage.commit import apply_queue
from veen_storage.disk.files import Files
from veen_storage.errors import PoisonedError, StorageError
from veen_storage.store import Store, create

from .faulty_files import OPERATIONS, SECTOR, CountingFiles, FaultyFiles, When
from .oracle import Promises, check_directory, drop, examine, half_visible
from .sample import BORN, HUB_KEY, INVOICES, ORDERS, add, at, send
from .scripted_run import ATTACHMENT, FEW, Run, memory_folder, short_segments
from .thorough import THOROUGH


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as path:
        yield path


# --- one fault, and what must hold after it


def survives(run: Run, files: FaultyFiles) -> bool:
    """Play until it fails, and check all that this module promises. False if nothing was there to fail."""
    error = play(run)
    if files.failed is None:
        assert error is None
        check_directory(run.root, run.promises)
        return False
    told = len(run.promises.told)
    if run.store is not None:
        assert error is not None
        is_still_readable(run, run.store, error)
        run.store.close()
    else:
        assert error is not None or run.background, "a fault went unnoticed"
    assert told <= len(run.promises.told)
    opens_again(run)
    return True


def play(run: Run) -> Exception | None:
    """Any other kind of exception is a bug, and goes up."""
    try:
        run.play()
    except (OSError, StorageError) as exc:
        return exc
    return None


def is_still_readable(run: Run, store: Store, error: Exception) -> None:
    """Reads go on, and nothing more is acknowledged."""
    for (label, seq), wire in run.promises.receipts.items():
        assert store.read.receipt(label, StreamSeq(seq)).encode() == wire
    assert not half_visible(examine(store, Promises()), run.promises)
    if run.step == "attach":
        assert store.poisoned is None, "an attachment is no part of the log"
        run.attach(ATTACHMENT)
        return
    if run.step == "publish":
        assert store.poisoned is None, "what is published is no part of the log"
        run.publish()
        return
    assert store.poisoned is not None
    assert run.step != "commit" or isinstance(error, PoisonedError)
    batch = store.batch(at(50))
    add(batch, INVOICES)
    with pytest.raises(PoisonedError, match="reopen"):
        store.commit(batch)


def opens_again(run: Run) -> None:
    """With a disk that works."""
    if (run.root / "VERSION").exists():
        check_directory(run.root, run.promises, as_it_is=not run.background)
        return
    assert not run.promises.created
    with pytest.raises(StorageError, match="has no VERSION"):
        Store(run.root)
    create(run.root, HUB_KEY, BORN, limits=FEW)
    check_directory(run.root, Promises())


@contextmanager
def told_where(run: Run, files: FaultyFiles) -> Iterator[None]:
    """Whatever fails here, say which operation it was."""
    try:
        yield
    except BaseException as exc:
        exc.add_note(f"{files.failed}; failed {files.when} it took effect, in step {run.step!r}")
        raise


KINDS = {"in the foreground": (False, None), "in the background and compressed": (True, 3)}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("background", "zstd_level"), KINDS.values(), ids=KINDS)
def test_any_operation_may_fail_once(
    folder: Path, when: When, background: bool, zstd_level: int | None
) -> None:
    """In the usual run every fourth operation, another in each case, and the first of each kind."""
    counted, names = CountingFiles(), set[str]()
    Run(folder / "whole", counted, background=background, zstd_level=zstd_level).play()
    kinds = {operation.name: operation.number for operation in reversed(counted.operations)}
    first, step = (1, 1) if THOROUGH else (1 + (when == "after") + 2 * background, 4)
    assert len(counted.operations) > 200
    for number in sorted({*range(first, len(counted.operations) + 1, step), *kinds.values()}):
        files = FaultyFiles(number, when)
        run = Run(folder / f"{number}", files, background=background, zstd_level=zstd_level)
        with told_where(run, files):
            if not survives(run, files):
                continue  # in the background, one run may have a few operations less than another
        assert files.failed is not None
        names.add(files.failed.name)
        shutil.rmtree(run.root, ignore_errors=True)
    assert names == OPERATIONS


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_a_disk_may_fail_permanently(folder: Path, error: int) -> None:
    """A sample: every ninth operation and all after it, each error from another one on."""
    for number in count(1 + error % 9, 9):
        files = FaultyFiles(number, "before", error, for_ever=True)
        run = Run(folder / f"{number}", files)
        with told_where(run, files):
            if not survives_for_good(run, files):
                break


def survives_for_good(run: Run, files: FaultyFiles) -> bool:
    error = play(run)
    if files.failed is None:
        return False
    assert error is not None
    if run.store is not None:
        if run.step not in ("attach", "publish"):
            is_still_readable(run, run.store, error)
        run.store.close()
    opens_again(run)
    return True


def test_any_write_may_be_torn_at_any_sector(folder: Path) -> None:
    counted = CountingFiles()
    Run(folder / "whole", counted).play()
    for operation in (o for o in counted.operations if o.name == "write"):
        for sectors in range(-(-operation.size // SECTOR)):
            files = FaultyFiles(operation.number, "torn", sectors=sectors)
            run = Run(folder / f"{operation.number}-{sectors}", files)
            with told_where(run, files):
                assert survives(run, files)
            shutil.rmtree(run.root, ignore_errors=True)


def test_a_fault_while_recovering_from_a_fault_is_survived(folder: Path) -> None:
    """The opening after a crash is itself cut off, at each of its operations."""
    run = Run(folder / "hub", Files())
    with short_segments():
        run.create()
        run.open()
        run.first_day()
    drop(run.opened)
    for number in count(1):
        root, files = folder / f"{number}", FaultyFiles(number, "after" if number % 2 else "before")
        shutil.copytree(run.root, root)
        with told_where(run, files):
            try:
                Store(root, files=files, background=False).close()
            except (OSError, StorageError):
                assert files.failed is not None
            else:
                assert files.failed is None
                break
            check_directory(root, run.promises.first(len(run.promises.told)))
    assert number > 20


# --- what one fault in one place does


def test_a_round_that_failed_is_not_skipped_by_the_next(folder: Path) -> None:
    """Else the index would say that its batches are applied, and the journal would let go of them."""
    run = Run(folder / "hub", Files())
    run.create()
    files = FaultyFiles(10**9)
    run.files = files
    run.open()
    for second in range(3):
        run.send(second, (ORDERS, 2))
    with patch.object(apply_queue, "ROUND_BYTES", 1):
        files.fail_at = len(files.operations) + 2
        with pytest.raises(OSError, match="Input/output error"):
            run.opened.apply()
        with pytest.raises(PoisonedError, match="reopen"):
            run.opened.apply()
    run.opened.close()
    check_directory(run.root, run.promises)


class GatedFiles(Files):
    """Lets the applier go only when it is told to, and then fails."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def sync_many(self, fds: list[int]) -> None:  # noqa: ARG002
        self.reached.set()
        assert self.go.wait(60)
        raise OSError(errno.EIO, "Input/output error")


def test_a_writer_that_waits_for_the_applier_fails_when_the_applier_fails(folder: Path) -> None:
    create(folder / "hub", HUB_KEY, BORN, limits=FEW)
    files = GatedFiles()
    store = Store(folder / "hub", files=files)
    heard: list[BaseException] = []

    def write() -> None:
        try:
            send(store, ORDERS)
        except PoisonedError as exc:
            heard.append(exc)

    with patch.object(store_module, "MAX_TAIL_BYTES", 0):
        send(store, ORDERS)
        assert files.reached.wait(60)
        writer = threading.Thread(target=write)
        writer.start()
        files.go.set()
        writer.join(30)
        assert not writer.is_alive(), "it waits although nobody is at work"
    assert len(heard) == 1
    assert "Input/output error" in str(heard[0])
    assert not store.settle()
    store.close()


def write_and_apply(run: Run, rounds: int) -> None:
    for second in range(rounds):
        run.send(second, (ORDERS, 3))
        run.apply()


def test_an_index_that_cannot_grow_poisons_the_store_and_loses_nothing(folder: Path) -> None:
    """A fault of the kernel's own making: LMDB writes past ``Files``, so a file size limit it is."""
    run = Run(folder / "hub", Files())
    run.create()
    run.open()
    run.send(1, (ORDERS, 3))
    run.apply()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((run.root / "index" / "data.mdb").stat().st_size, hard))
        with pytest.raises(StorageError, match=r"index/data\.mdb"):
            write_and_apply(run, 300)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(PoisonedError):
        send(run.opened, ORDERS)
    examine(run.opened, run.promises)
    run.opened.close()
    check_directory(run.root, run.promises)


def test_an_attachment_whose_first_put_was_interrupted_is_made_durable_by_the_second(folder: Path) -> None:
    """The name is there, but nobody synced it: to say "it was there already" would promise too much."""
    create(folder / "hub", HUB_KEY, BORN, limits=FEW)
    coid = Coid(H(ATTACHMENT))
    for number in count(1):
        files = FaultyFiles(number, "after")
        with Store(folder / "hub", files=files, background=False) as store:
            try:
                store.attachments.put(coid, [ATTACHMENT])
            except OSError:
                before = len(files.operations)
                store.attachments.put(coid, [ATTACHMENT])
            else:
                break
        synced = {o.path for o in files.operations[before:] if o.name == "sync_directory"}
        path = store.layout.attachment(coid)
        folders = {str(path.parent), str(path.parent.parent), str(store.layout.attachments)}
        earlier = {o.path for o in files.operations[: before - 1] if o.name == "sync_directory"}
        assert folders <= synced | earlier
        path.unlink()
    assert number > 5


def test_a_store_that_failed_to_open_releases_lock_and_index(folder: Path) -> None:
    """Lock and index are free for the next try, also while the exception is still held."""
    run = Run(folder / "hub", Files())
    run.create()
    run.open()
    run.send(1, (ORDERS, 3))
    drop(run.opened)
    with pytest.raises(OSError, match="Input/output error") as held:
        Store(run.root, files=FaultyFiles(1), background=False)
    check_directory(run.root, run.promises)
    assert held.value.errno == errno.EIO
