"""A process that the tests start warm is what a cold one is (``veen_testing.warm_start``)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from veen_testing.warm_start import WarmStarts

FACTS = """
import json, os, random, resource, signal, sys
sys.stdout.reconfigure(errors="replace")
print(json.dumps({
    "argv": sys.argv,
    "name": __name__,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:3] + [str(len(os.listdir("/proc/self/fd")))],
    "threads": len(os.listdir("/proc/self/task")),
    "signals": {str(n): str(signal.getsignal(n)) for n in signal.valid_signals() if n not in (9, 19)},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "leads its session": os.getsid(0) == os.getpid(),
    "leads its group": os.getpgid(0) == os.getpid(),
    "streams": [
        [each.seekable(), each.line_buffering, each.write_through, each.encoding, each.errors, each.fileno()]
        for each in (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__)
    ],
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "stdin": sys.stdin.read(),
}))
print(json.dumps([os.getpid(), os.getppid(), random.random()]))
print("to stderr", file=sys.stderr)
sys.exit(7)
"""
WAITS = "print(flush=True); import time; time.sleep(600)"


def facts(folder: Path, **options: Any) -> tuple[dict[str, Any], list[Any]]:
    env = {"VEEN_X": "a\nb", "PATH": "/bin"}
    done = subprocess.run(
        [sys.executable, "-c", FACTS, "one", ""],
        cwd=folder,
        env=env,
        input="given",
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert (done.returncode, done.stderr) == (7, "to stderr\n")
    same, own = map(json.loads, done.stdout.splitlines())
    return same, own


def test_a_warm_process_has_what_a_cold_one_has_and_nothing_of_another(tmp_path: Path) -> None:
    with WarmStarts({("-c", FACTS)}, ["json"]).active():
        cold, (_, parent, _) = facts(tmp_path)
        warm = [facts(tmp_path) for _ in range(2)]
        session, _ = facts(tmp_path, start_new_session=True)
    for found, (_, its_parent, _) in warm:
        assert found == cold
        assert its_parent == parent, "this process waits for it"
    (first, _, drawn), (second, _, drawn_later) = (own for _, own in warm)
    assert first != second
    assert drawn != drawn_later
    assert session == cold | {"leads its session": True, "leads its group": True}


def test_signals_reach_a_warm_process_and_it_alone() -> None:
    with WarmStarts({("-c", WAITS)}, []).active():
        started = [
            subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "\n"
        _cold, killed, ended, other = started
        killed.kill()
        ended.terminate()
        assert (killed.wait(60), ended.wait(60)) == (-signal.SIGKILL, -signal.SIGTERM)
        assert other.poll() is None
        other.send_signal(signal.SIGSTOP)
        other.send_signal(signal.SIGCONT)
        for process in started:
            process.kill()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()
