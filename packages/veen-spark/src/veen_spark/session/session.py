"""A Spark session that needs no configuration: Java, Python, logging and the settings of veen_spark.

By default Spark runs in this process on all cores. ``master`` may also be ``spark://…``, ``k8s://…``,
``yarn`` or Spark Connect's ``sc://…``; docs/guides/spark-cluster.md says what executors then need.
Spark logs errors only, and shows a progress bar on a terminal; ``verbose`` shows Spark's own log instead.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veen_spark.errors import SparkSetupError
from veen_spark.session.java import java_home
from veen_spark.session.master import LOCAL, is_connect, is_local, require_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",  # off by default in Spark
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
}
"""Settings of every session; they can be changed on an existing session."""
_START_SETTINGS: Final[Mapping[str, str]] = {
    "spark.buffer.size": str(1_048_576),  # between JVM and Python workers; ADR 0012 has the measurement
}
"""Settings that must be known when a session is created."""
_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",  # opens no port
    "spark.python.worker.reuse": "true",
    "spark.sql.catalogImplementation": "in-memory",
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PYTHON: Final = "spark.pyspark.python"
_QUIET: Final = "log4j2-quiet.properties"
_VERBOSE: Final = "log4j2-verbose.properties"


def start(
    master: str | None = None,
    *,
    app_name: str = "veen",
    verbose: bool = False,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with ``format("veen")`` and the SQL functions; reuse the session of this process."""
    master, config = master or LOCAL, config or {}
    if is_connect(master):
        session = _connect(master, config)
    else:
        session = _create(master, app_name, verbose=verbose, config=config)
    from veen_spark.functions import sql  # noqa: PLC0415 - loads pyspark
    from veen_spark.read import source  # noqa: PLC0415 - loads pyspark

    with ThreadPoolExecutor(1) as second:  # the JVM loads their classes side by side: 0.9 instead of 1.3 s
        registered = second.submit(source.register, session)
        sql.register(session)
        registered.result()
    return session


def _create(master: str, app_name: str, *, verbose: bool, config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes half a second

    require_answer(master)
    prepare_environment(local=is_local(master), python=config.get(_PYTHON))
    logging = _log_settings(Path(str(files("veen_spark") / (_VERBOSE if verbose else _QUIET))), config)
    builder = SparkSession.builder.master(master).appName(app_name)
    local = _LOCAL_SETTINGS if is_local(master) else {}
    progress = {"spark.ui.showConsoleProgress": str(not verbose and sys.stderr.isatty()).lower()}
    for key, value in {**SETTINGS, **_START_SETTINGS, **local, **progress, **config, **logging}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as exc:  # Py4J and pyspark have their own exceptions
        raise SparkSetupError(
            f"Spark does not start on {master}: {_first_line(exc)}", action="see Spark's log with --verbose"
        ) from exc


def _connect(url: str, config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    try:
        import pyspark.sql.connect.session  # noqa: F401, PLC0415 - getOrCreate would fail later
    except ImportError as exc:
        raise SparkSetupError(
            f"Spark Connect needs more packages ({_first_line(exc)})", action="install veen-spark[connect]"
        ) from exc
    require_answer(url)
    try:
        session = SparkSession.builder.remote(url).getOrCreate()
    except Exception as exc:
        raise SparkSetupError(
            f"no Spark Connect server answers at {url}: {_first_line(exc)}",
            action="check that the server runs and that --master is its address",
        ) from exc
    for key, value in {**SETTINGS, **config}.items():
        session.conf.set(key, value)
    return session


def prepare_environment(*, local: bool, python: str | None = None) -> None:
    """Set the environment variables with which the JVM and the Python workers are started.

    ``python`` is the program that executors run. pyspark takes it from the environment only, and also plans
    reads with it on this machine.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    if not local and python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    elif local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # Without these two, Spark looks up the name of this machine, which can take 30 s.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_DIRS", tempfile.gettempdir())
    if shutil.which(os.environ["PYSPARK_PYTHON"]) is None:
        raise SparkSetupError(
            f"Spark plans reads on this machine with {os.environ['PYSPARK_PYTHON']}, which does not exist",
            action="unpack the executors' environment here too, under the same path",
        )


def _log_settings(file: Path, config: Mapping[str, str]) -> dict[str, str]:
    """Return the JVM option that configures Log4j, followed by the user's own options."""
    given = config.get(_JAVA_OPTIONS, "")
    return {_JAVA_OPTIONS: f"-Dlog4j2.configurationFile=file:{file} {given}".strip()}


def _first_line(error: BaseException) -> str:
    if (thrown := getattr(error, "java_exception", None)) is not None:  # the JVM's own message
        return str(thrown.getMessage()).strip().splitlines()[0]
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
