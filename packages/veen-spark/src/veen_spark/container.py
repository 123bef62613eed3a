"""What the image veen-spark runs: an executor that Spark starts in Kubernetes, else ``veen spark``.

Spark starts the pods of its executors with the argument ``executor`` and describes the executor in variables
of the environment. The script that Spark's own images have for this needs a shell and Spark's folder layout.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from veen_spark.session.java import java_home

BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Options of the backend, and the variables in which Spark passes their values."""
_JAVA_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def executor_command(environment: Mapping[str, str], jars: Path) -> list[str]:
    """Return the arguments of Java for the executor that the variables describe."""
    numbered = {int(found[1]): name for name in environment if (found := _JAVA_OPTION.fullmatch(name))}
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    folders = (environment.get("SPARK_CONF_DIR"), environment.get("SPARK_CLASSPATH"), f"{jars}/*")
    return [
        *(environment[numbered[number]] for number in sorted(numbered)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(filter(None, folders)),
        BACKEND,
        *(word for option, variable in _OPTIONS.items() for word in (option, environment[variable])),
    ]


def main(words: list[str]) -> None:
    """Become the executor, or the command; this does not return."""
    if words[:1] != ["executor"]:
        program = Path(sys.executable).with_name("veen-cli")
        os.execv(program, [str(program), "spark", *words])  # noqa: S606 - the command of this image
    import pyspark  # noqa: PLC0415 - the command does not need it here

    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    try:
        command = executor_command(os.environ, Path(pyspark.__file__).with_name("jars"))
    except KeyError as exc:
        sys.exit(f"veen-spark executor: {exc} is not set; Spark sets it in the pods that it starts")
    os.execv(home / "bin" / "java", ["java", *command])  # noqa: S606 - Spark's own Java


if __name__ == "__main__":
    main(sys.argv[1:])
