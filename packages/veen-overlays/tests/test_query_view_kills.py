"""A killed writer leaves a view that is right: kill -9 at every durable step, and at random moments (P13)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import query_view_writer as writer

from veen_overlays.live.query_view import DuckDbEngine, QueryView
from veen_overlays.query.plain_engine import PlainEngine
from veen_overlays.query.request.descriptor import normalise

ROUNDS = int(os.environ.get("VEEN_CRASH_ROUNDS", "4"))
STEPS_PER_TEST = 12
LOG = writer.log_of()
ALL_ROWS = normalise(
    {"scope": [writer.STREAM], "filter": {}, "projection": ["*"], "evidence": {"mode": "full"}},
    new_query_id="q-1",
)


def check(folder: Path) -> int:
    """The view opens, and its answer is that of the log's prefix; return how far it goes."""
    with QueryView.open(folder) as view:
        engine = DuckDbEngine(view, {writer.STREAM: LOG.hub_id})
        prefixes = engine.prefixes([writer.STREAM])
        answer = engine.execute(ALL_ROWS, prefixes)
        engine.close()
        if not prefixes:
            return 0
        (prefix,) = prefixes
        assert prefix == LOG.prefix(prefix.to_seq)
        assert answer == PlainEngine([LOG.source()]).execute(ALL_ROWS, prefixes)
        return prefix.to_seq


def killed_at(folder: Path, step: int) -> bool:
    """Write in a forked process that kills itself at a step; False if it finished before."""
    child = os.fork()
    if child == 0:
        try:
            writer.small_commits()
            writer.die_at(step)
            writer.write(folder, LOG)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("first", range(1, STEPS_PER_TEST + 1), ids=lambda first: f"from-{first}")
def test_a_kill_at_any_durable_step_leaves_a_prefix_that_is_continued(tmp_path: Path, first: int) -> None:
    """Each writer continues what the killed one left, and dies one stride later than it did."""
    step, reached, kills = first, 0, 0
    while killed_at(tmp_path, step):
        kills += 1
        now = check(tmp_path)
        assert now >= reached, "a committed prefix was lost"
        reached, step = now, step + STEPS_PER_TEST
    assert kills
    assert check(tmp_path) == writer.EVENTS


def test_a_kill_at_a_random_moment_leaves_a_view_that_is_right(tmp_path: Path) -> None:
    rng, reached = random.Random(5), 0
    for _ in range(ROUNDS):
        process = subprocess.Popen(
            [sys.executable, writer.__file__, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        try:
            process.wait(timeout=rng.uniform(0.005, 0.3))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        now = check(tmp_path)
        assert now >= reached, "a committed prefix was lost"
        reached = now
    writer.write(tmp_path, LOG)
    assert check(tmp_path) == writer.EVENTS
