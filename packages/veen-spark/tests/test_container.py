"""What the image veen-spark runs when Spark starts it as an executor in Kubernetes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from veen_spark.container import BACKEND, executor_command

POD = {
    "SPARK_JAVA_OPT_10": "-Dten=10",
    "SPARK_JAVA_OPT_2": "-Dtwo=a b",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "veen-exec-1",
}


def test_the_variables_of_an_executors_pod_become_the_arguments_of_its_backend() -> None:
    command = executor_command(POD, Path("/jars"))
    assert command[:4] == ["-Dtwo=a b", "-Dten=10", "-Xms512m", "-Xmx512m"], "options keep Spark's order"
    assert command[4:7] == ["-cp", "/opt/spark/conf:/jars/*", BACKEND]
    given = dict(zip(command[7::2], command[8::2], strict=True))
    assert given["--driver-url"] == POD["SPARK_DRIVER_URL"]
    assert given["--hostname"] == "10.0.0.2"
    assert given["--podName"] == "veen-exec-1"


def test_an_executor_that_spark_did_not_start_says_which_variable_is_missing() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    command = [sys.executable, "-m", "veen_spark.container", "executor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode == 1
    assert "SPARK_EXECUTOR_MEMORY" in done.stderr
