"""veen-spark's speed as ratios within one run, one JSON line per figure.

    python packages/veen-spark/benchmarks/run.py            10^6 entries; up to half an hour
    python packages/veen-spark/benchmarks/run.py --quick    10^5 entries; a few minutes

``spark.startup``             a process that calls ``veen_spark.start()``, against a bare SparkSession of the
                              same PySpark and Java
``spark.read``                chunk files read to Arrow, against the same rows read from Parquet
``spark.verify``              verification on local[2], against the same code in one plain process
``spark.fold``                wallet events opened, decoded and folded on local[2], against one plain process
``spark.skew``                the same with equal labels, against one label with 90 % of the events
``query.spark_equal``         1 if queries over recorder events have the digests of the plain loop
``spark.worker_rss_growth``   the largest Python worker with all entries, against a tenth of them

Subject and yardstick take turns, and the fastest round of each counts: five rounds for reading, three for
the start, one for verifying and folding, which take minutes. Seconds go to stderr. ``--only NAME`` measures
one figure, ``--directory`` chooses the disk, ``--keep`` keeps the logs for the next run. Each figure is a
function of ``Bench``; add it to ``FIGURES``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import folds
import logs
import queries

from veen_spark import start
from veen_spark.read.parquet import write_parquet
from veen_spark.verify import verify
from veen_spark.verify.pipeline import run_pipeline
from veen_spark.verify.tasks import In, Out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2


@dataclass
class Bench:
    """The session, and a folder for the logs."""

    spark: SparkSession
    root: Path
    entries: int

    def log(self, shape: logs.Shape) -> Path:
        return logs.once(self.root / f"log-{shape.entries}", partial(logs.make, shape=shape))

    def fastest(
        self, subject: Callable[[], object], yardstick: Callable[[], object], *, rounds: int
    ) -> float:
        """Return the yardstick's fastest round divided by the subject's."""
        best = [float("inf"), float("inf")]
        for _ in range(rounds):
            for n, work in enumerate((subject, yardstick)):
                began = time.perf_counter()
                work()
                best[n] = min(best[n], time.perf_counter() - began)
        sys.stderr.write(f"{self.entries} entries: {best[0]:.2f} s, the yardstick {best[1]:.2f} s\n")
        return best[1] / best[0]


def consume(frame: DataFrame) -> None:
    """Compute every row and discard it."""
    frame.write.format("noop").mode("overwrite").save()


# --- the figures


def read(bench: Bench) -> float:
    spark, log = bench.spark, bench.log(logs.Shape(bench.entries))
    parquet = bench.root / f"parquet-{bench.entries}"
    logs.once(parquet, lambda to: write_parquet(spark, [str(log)], str(to)))
    return bench.fastest(
        lambda: consume(spark.read.format("veen").load(str(log))),
        lambda: consume(spark.read.parquet(str(parquet)).drop("hub", "day")),  # the same columns
        rounds=5,
    )


def in_this_process(task: Callable[[list[In]], list[Out]], work: Sequence[list[In]]) -> list[Out]:
    """Run the tasks of a verification one after another, without Spark."""
    return [result for piece in work for result in task(piece)]


def verify_figure(bench: Bench) -> float:
    log = str(bench.log(logs.Shape(bench.entries)))

    def distributed() -> None:
        report = verify(bench.spark, log)
        assert report.ok, report.as_object()

    def plainly() -> None:
        report = run_pipeline(in_this_process, [log])
        assert report.ok, report.as_object()

    verify(bench.spark, str(bench.log(logs.Shape(bench.entries // 10))))  # warms the workers
    return bench.fastest(distributed, plainly, rounds=1)


@contextmanager
def watched_workers() -> Iterator[list[int]]:
    """Measure the largest resident set, in KiB, of Spark's Python workers inside this block."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            for status in Path("/proc").glob("[0-9]*/status"):
                peak[0] = max(peak[0], _worker_kb(status))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _worker_kb(status: Path) -> int:
    try:
        if b"pyspark" not in (status.parent / "cmdline").read_bytes():
            return 0
        lines = status.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    if "Name:\tjava" in lines or not _is_ours(lines):
        return 0
    return _field(lines, "VmRSS")


def _is_ours(lines: list[str]) -> bool:
    """Return whether this process started it: other Spark sessions may run on the machine."""
    while (parent := _field(lines, "PPid")) > 1:
        if parent == os.getpid():
            return True
        try:
            lines = Path(f"/proc/{parent}/status").read_text(encoding="ascii").splitlines()
        except OSError:
            return False
    return False


def _field(lines: list[str], name: str) -> int:
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def worker_rss_growth(bench: Bench) -> float:
    peaks = []
    for entries in (bench.entries // 10, bench.entries):
        log = str(bench.log(logs.Shape(entries)))
        with watched_workers() as peak:
            consume(bench.spark.read.format("veen").load(log))
            verify(bench.spark, log)
        peaks.append(peak[0])
    return peaks[1] / peaks[0]


def fold_figure(bench: Bench) -> float:
    return folds.measured(bench.spark, bench.root / f"folds-{bench.entries}", bench.entries)["spark.fold"]


def skew_figure(bench: Bench) -> float:
    return folds.measured(bench.spark, bench.root / f"folds-{bench.entries}", bench.entries)["spark.skew"]


def query_figure(bench: Bench) -> float:
    return queries.equal(bench.spark, bench.root / f"queries-{bench.entries}", bench.entries)


@dataclass(frozen=True)
class Figure:
    """A measurement and its target, which is a minimum or a maximum."""

    measure: Callable[[Bench], float]
    target: float
    at_least: bool = True


BARE = """
from pyspark.sql import SparkSession
SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate().stop()
"""
OURS = """
from veen_spark import start
start("local[2]").stop()
"""


def startup(bench: Bench) -> float:
    """Both programs use the Java, Python and address that ``prepare_environment`` has set."""

    def run(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], check=True, stderr=subprocess.DEVNULL)  # noqa: S603

    return 1 / bench.fastest(lambda: run(OURS), lambda: run(BARE), rounds=3)


FIGURES: dict[str, Figure] = {
    "spark.startup": Figure(startup, 1.3, at_least=False),
    "spark.worker_rss_growth": Figure(worker_rss_growth, 1.3, at_least=False),
    "spark.read": Figure(read, 0.35),
    "spark.verify": Figure(verify_figure, 1.5),
    "spark.fold": Figure(fold_figure, 1.4),
    "spark.skew": Figure(skew_figure, 0.8),
    "query.spark_equal": Figure(query_figure, 1),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--entries", type=int, help="instead of 10^6 or 10^5")
    parser.add_argument("--only", action="append", choices=FIGURES, help="measure only this figure; repeat")
    parser.add_argument("--directory", type=Path, help="folder for the logs")
    parser.add_argument("--keep", type=Path, help="folder for the logs, which are kept for the next run")
    given = parser.parse_args()
    entries = given.entries or (100_000 if given.quick else 1_000_000)
    failed = 0
    with (
        nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory(dir=given.directory) as folder
    ):
        spark = start(f"local[{CORES}]", app_name="veen-spark benchmarks")
        bench = Bench(spark, Path(folder), entries)
        for name, figure in FIGURES.items():
            if given.only and name not in given.only:
                continue
            value = figure.measure(bench)
            good = value >= figure.target if figure.at_least else value <= figure.target
            failed += not good
            line = {"name": name, "value": round(value, 3), "target": figure.target, "ok": good}
            sys.stdout.write(json.dumps({**line, "entries": entries}) + "\n")
            sys.stdout.flush()
        spark.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
