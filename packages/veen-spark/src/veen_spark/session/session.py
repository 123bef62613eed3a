"""A Spark session that needs no configuration: Java, Python, logging and the settings veen_spark relies on.

Local by default, with as many threads as there are cores. ``master`` may also be ``spark://…``, ``k8s://…``,
``yarn`` or Spark Connect's ``sc://…``; there the executors need this environment too (docs/spark.md).
A session is quiet: Spark's log goes nowhere but its errors, and on a terminal a progress bar shows how far
it is. ``verbose`` gives Spark's own log instead.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
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
    "spark.sql.python.filterPushdown.enabled": "true",  # else the data source never sees a filter
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
}
"""Wherever it runs; they can be set on a session that is there already."""
_OWN_SETTINGS: Final[Mapping[str, str]] = {
    "spark.buffer.size": str(1_048_576),  # between JVM and Python workers: a batch in few pieces, not in many
}
"""Where a session is made; too late for one that is there."""
_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",  # nobody asked for a port
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
    """A session that knows ``format("veen")``; one that this process has open already is taken."""
    master, config = master or LOCAL, config or {}
    if is_connect(master):
        session = _connected(master, config)
    else:
        session = _own(master, app_name, verbose=verbose, config=config)
    from veen_spark.functions import sql  # noqa: PLC0415 - they load pyspark, as a session does
    from veen_spark.read import source  # noqa: PLC0415 - they load pyspark, as a session does

    source.register(session)
    sql.register(session)
    return session


def _own(master: str, app_name: str, *, verbose: bool, config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - half a second that only a session needs

    require_answer(master)
    prepare_environment(local=is_local(master), python=config.get(_PYTHON))
    logging = _log_settings(Path(str(files("veen_spark") / (_VERBOSE if verbose else _QUIET))), config)
    builder = SparkSession.builder.master(master).appName(app_name)
    local = _LOCAL_SETTINGS if is_local(master) else {}
    progress = {"spark.ui.showConsoleProgress": str(not verbose and sys.stderr.isatty()).lower()}
    for key, value in {**SETTINGS, **_OWN_SETTINGS, **local, **progress, **config, **logging}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as exc:  # Py4J and pyspark raise families of their own
        raise SparkSetupError(f"Spark does not start on {master}: {_first_line(exc)}") from exc


def _connected(url: str, config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    try:
        import pyspark.sql.connect.session  # noqa: F401, PLC0415 - what getOrCreate would stumble over later
    except ImportError as exc:
        raise SparkSetupError(
            f"Spark Connect needs more packages ({_first_line(exc)}): install veen-spark[connect]"
        ) from exc
    require_answer(url)
    try:
        session = SparkSession.builder.remote(url).getOrCreate()
    except Exception as exc:
        raise SparkSetupError(f"no Spark Connect server answers at {url}: {_first_line(exc)}") from exc
    for key, value in {**SETTINGS, **config}.items():
        session.conf.set(key, value)
    return session


def prepare_environment(*, local: bool, python: str | None = None) -> None:
    """Set what the JVM and the Python workers are started with, for this process and its children.

    ``python`` is what executors run. pyspark looks for it in the environment alone, and plans reads with the
    same one on this machine.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    if not local and python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    elif local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else it looks this machine's name up,
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")  # which can take half a minute
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_DIRS", tempfile.gettempdir())
    if shutil.which(os.environ["PYSPARK_PYTHON"]) is None:
        raise SparkSetupError(
            f"there is no {os.environ['PYSPARK_PYTHON']} here, where Spark plans what executors then do with "
            "it: unpack the executors' environment here too, under the same name"
        )


def _log_settings(file: Path, config: Mapping[str, str]) -> dict[str, str]:
    """Log4j's configuration has to be there before the JVM is: on its command line, before what was given."""
    given = config.get(_JAVA_OPTIONS, "")
    return {_JAVA_OPTIONS: f"-Dlog4j2.configurationFile=file:{file} {given}".strip()}


def _first_line(error: BaseException) -> str:
    if (thrown := getattr(error, "java_exception", None)) is not None:  # what the JVM says, not who called it
        return str(thrown.getMessage()).strip().splitlines()[0]
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
