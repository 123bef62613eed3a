"""Spark's own servers, as pyspark brings them: a standalone master with a worker, and Spark Connect's.

Real processes on loopback, on ports of their choice, ended with the block that started them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import threading
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from veen_spark.session.java import java_home

SPARK_HOME = Path(pyspark.__file__).parent
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM that lives for a minute: compiling well would take longer than it saves."""
SECONDS = 60.0
"""In which a server is there, or never will be."""


def environment(**more: str) -> dict[str, str]:
    """Of a process that knows its address: looking it up can take half a minute."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    here = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    return {**kept, "SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(java_home()), **here, **more}


class Daemon:
    """A process whose log is read as it comes."""

    def __init__(self, script: str, *args: str, **env: str) -> None:
        command = [str(SPARK_HOME / "bin" / script), *args]
        self._process = subprocess.Popen(
            command, env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._log: list[str] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._more:
                self._log.append(line)
                self._more.notify_all()

    def said(self, pattern: str) -> str:
        """The first group of the first line that matches, once it is there."""
        found: list[re.Match[str]] = []

        def matched() -> bool:
            found.extend(match for line in self._log if (match := re.search(pattern, line)))
            return bool(found)

        with self._more:
            assert self._more.wait_for(matched, SECONDS), "".join(self._log)
        return found[0][1]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)
        self._reader.join(SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and a worker that works in ``folder``; the master's URL."""
    small = {
        "SPARK_DAEMON_JAVA_OPTS": BRIEF,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    deploy = "org.apache.spark.deploy"
    master = Daemon("spark-class", f"{deploy}.master.Master", *ports, **small)
    try:
        url = master.said(r"Starting Spark master at (spark://\S+)")
        limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
        worker = Daemon("spark-class", f"{deploy}.worker.Worker", *ports, *limits, url, **small)
        try:
            worker.said(r"Successfully (registered) with master")
            yield url
        finally:
            worker.stop()
    finally:
        master.stop()


@contextmanager
def connect_server() -> Iterator[str]:
    """A Spark Connect server with executors in its own process; its URL."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.extraJavaOptions": BRIEF,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    service = "org.apache.spark.sql.connect.service.SparkConnectServer"
    server = Daemon(
        "spark-submit",
        *("--class", service, "--master", "local[2]", "--driver-memory", "1g", *conf, "spark-internal"),
        PYSPARK_PYTHON=sys.executable,
    )
    try:
        yield f"sc://{server.said(r'Spark Connect server started at: (127.0.0.1:[0-9]+)')}"
    finally:
        server.stop()


def packed_environment(folder: Path) -> Path:
    """``folder/environment`` and its archive, as ``pack-environment`` makes them, but of links.

    Whenever Python starts in it, it adds where it lies to ``folder/started``.
    """
    home = folder / "environment"
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    told = f"import sys; open({str(folder / 'started')!r}, 'a').write(sys.prefix + chr(10))"
    paths = [path for path in sys.path if path.endswith("site-packages")]
    sources = [path for path in sys.path if path.endswith("/src")]
    (packages / "linked.pth").write_text("\n".join([*paths, *sources, told]) + "\n")
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        archive.add(home, arcname=".")
    return home
