"""Build the container images of this checkout with podman or docker.

    bin/images                     all targets, tagged <name>:<version> and localhost/<name>:<version>
    bin/images veen-hub veen-cli   these targets only

1. The wheels of the workspace are built from the checkout.
2. Third-party wheels come from uv.lock, each checked against its hash. A package that is published as source
   alone is built from it.
3. The images are built from both without a network.

With podman, the same commit, base and version of podman give the same digests: files and history have the
commit's time, and the history names no step of an earlier build. docker has no such options: its digests
differ in the times of the layers, not in the files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[2]
CONTAINERFILE: Final = ROOT / "k8s" / "images" / "Containerfile"
PYTHON: Final = "3.13"
"""The Python of the base image."""
LABEL: Final = "org.opencontainers.image"
UV: Final = os.environ.get("VEEN_UV", "uv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one image installs."""

    package: str
    extras: tuple[str, ...] = ()


TARGETS: Final[Mapping[str, Target]] = {
    "veen-hub": Target(package="veen-hub"),
    "veen-witness": Target(package="veen-hub"),
    "veen-cli": Target(package="veen-cli"),
    "veen-bridge": Target(package="veen-bridge"),
    "veen-selftest": Target(package="veen-selftest", extras=("query",)),
    "veen-query": Target(package="veen-cli", extras=("query",)),
    "veen-spark": Target(package="veen-spark"),
}
DEFAULT_TARGETS: Final = tuple(name for name in TARGETS if name != "veen-spark")
"""Spark is several hundred megabytes: only when it is named."""


class ImageError(Exception):
    """A step failed; the message says which, and what helps."""


def run(*command: str | Path, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """Run a program; return its output, or raise with the end of its errors."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ImageError(f"{' '.join(map(str, command[:3]))} … failed:\n{done.stderr[-2_000:]}")
    return done.stdout


def version_of(package: str) -> str:
    with (ROOT / "packages" / package / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def build_own_wheels(wheels: Path, commit_time: str) -> None:
    build = (UV, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", wheels)
    run(*build, environment={"SOURCE_DATE_EPOCH": commit_time})
    for extra in wheels.glob(".gitignore"):
        extra.unlink()


def export(target: Target, *more: str) -> str:
    extras = [word for extra in target.extras for word in ("--extra", extra)]
    chosen = ("--frozen", "--no-dev", "--no-header", "--package", target.package, *extras)
    return run(UV, "export", "--quiet", *chosen, *more)


def locked_requirements(target: Target, machine: str) -> list[str]:
    """Return the third-party requirements of a target for the base image's Python, each with its hashes."""
    environment = {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "python_version": PYTHON,
        "python_full_version": f"{PYTHON}.0",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_system": "Linux",
        "platform_machine": machine,
        "extra": "",
    }
    text = export(target, "--no-emit-workspace", "--no-annotate").replace("\\\n", " ")
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, *hashes = line.split(" --hash=")
        requirement = Requirement(name)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            pinned = f"{requirement.name}{requirement.specifier}"
            found.append(" --hash=".join([pinned, *(one.strip() for one in hashes)]))
    return found


def own_requirements(target: Target, wheels: Path) -> list[str]:
    """Return the workspace's packages that a target needs, pinned to the wheels just built."""
    listed = export(target, "--no-hashes", "--no-annotate")
    names = [line.rsplit("/", 1)[-1] for line in listed.splitlines() if line.startswith(("-e ./", "./"))]
    found = []
    for name in names:
        (wheel,) = wheels.glob(f"{name.replace('-', '_')}-*.whl")
        found.append(
            f"{name}=={version_of(name)} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"
        )
    return found


def source_only() -> set[str]:
    """Return the packages of uv.lock that are published as source alone, such as pyspark."""
    with (ROOT / "uv.lock").open("rb") as file:
        packages = tomllib.load(file)["package"]
    return {each["name"] for each in packages if "sdist" in each and not each.get("wheels")}


def build_locked_source(line: str, wheels: Path, folder: Path, commit_time: str) -> str:
    """Build the wheel of a package that has none; return its requirement with the hash of that wheel."""
    requirement, built = folder / "source.txt", folder / "built"
    requirement.write_text(line + "\n")
    rules = ("--no-deps", "--require-hashes", f"--requirement={requirement}", f"--wheel-dir={built}")
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", *rules)
    run(*build, environment={"SOURCE_DATE_EPOCH": commit_time})
    requirement.unlink()
    (wheel,) = built.iterdir()
    content = wheel.read_bytes()
    wheel.replace(wheels / wheel.name)
    built.rmdir()
    return f"{line.partition(' --hash=')[0]} --hash=sha256:{hashlib.sha256(content).hexdigest()}"


def fetch_locked_wheels(requirements: Path, wheels: Path, machine: str) -> None:
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in (17, 24, 26, 27, 28, 31, 34)]
    wanted = (f"--python-version={PYTHON}", "--implementation=cp", f"--platform=manylinux2014_{machine}")
    rules = ("--no-deps", "--only-binary=:all:", "--require-hashes", f"--requirement={requirements}")
    download = (sys.executable, "-m", "pip", "download", "--quiet", f"--dest={wheels}")
    run(*download, *rules, *wanted, *platforms)


def prepare(context: Path, targets: Sequence[str], machine: str, commit_time: str) -> None:
    """Fill the build context: wheels, requirements and one bill of materials for each target."""
    wheels, requirements, sbom = (context / name for name in ("wheels", "requirements", "sbom"))
    for folder in (wheels, requirements, sbom):
        folder.mkdir()
    build_own_wheels(wheels, commit_time)
    without_wheel = source_only()
    with_wheel: dict[str, None] = {}
    for name in targets:
        target = TARGETS[name]
        locked = locked_requirements(target, machine)
        sources = [
            line for line in locked if Requirement(line.partition(" --hash=")[0]).name in without_wheel
        ]
        third_party = [line for line in locked if line not in sources]
        with_wheel.update(dict.fromkeys(third_party))
        built = [build_locked_source(line, wheels, context, commit_time) for line in sources]
        lines = [*own_requirements(target, wheels), *third_party, *built]
        (requirements / f"{name}.txt").write_text("\n".join(lines) + "\n")
        (sbom / f"{name}.json").write_text(bill_of_materials(target))
    wanted = context / "third-party.txt"
    wanted.write_text("\n".join(with_wheel) + "\n")
    fetch_locked_wheels(wanted, wheels, machine)
    wanted.unlink()


def bill_of_materials(target: Target) -> str:
    """Return the CycloneDX document of a target, without the serial number and time that differ each run."""
    document = json.loads(export(target, "--format", "cyclonedx1.5", "--preview-features", "sbom-export"))
    document.pop("serialNumber", None)
    document.get("metadata", {}).pop("timestamp", None)
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def engine() -> str:
    for name in ("podman", "docker"):
        if shutil.which(name):
            return name
    raise ImageError("neither podman nor docker is on PATH; install one of them")


def build_images(
    context: Path,
    targets: Sequence[str],
    *,
    program: str,
    base: str | None,
    tag: str,
    commit: tuple[str, str],
) -> list[str]:
    revision, commit_time = commit
    tags = []
    for name in targets:
        image = f"localhost/{name}:{tag}"
        options = [
            f"--build-arg=TARGET={name}",
            f"--label={LABEL}.title={name}",
            f"--label={LABEL}.version={version_of(TARGETS[name].package)}",
            f"--label={LABEL}.revision={revision}",
            "--network=none",
            f"--target={name}",
            f"--tag={image}",
            f"--file={CONTAINERFILE}",
        ]
        options += [f"--build-arg=BASE_IMAGE={base}"] if base else []
        if program == "podman":
            # Without its cache of steps: the history would name steps of earlier builds, with their times.
            options += [f"--timestamp={commit_time}", "--layers=false"]
        sys.stderr.write(f"building {image}\n")
        run(program, "build", *options, context)
        tags.append(image)
    return tags


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/images", description="Build the container images of this checkout."
    )
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)} [default: all but veen-spark]"
    )
    parser.add_argument(
        "--base", help="base image with Python 3.13 [default: the one pinned in the Containerfile]"
    )
    parser.add_argument(
        "--tag", default=version_of("veen-hub"), help="tag of the images [default: the version]"
    )
    parser.add_argument(
        "--context", type=Path, help="keep the build context in this new folder, and build nothing"
    )
    given = parser.parse_args(words)
    if unknown := [name for name in given.targets if name not in TARGETS]:
        parser.error(f"no image is called {', '.join(unknown)}; choose from {', '.join(TARGETS)}")
    return given


def main(words: Sequence[str]) -> int:
    given = _arguments(words)
    targets = given.targets or list(DEFAULT_TARGETS)
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine(), platform.machine())
    try:
        revision, commit_time = run("git", "log", "-1", "--format=%H %ct").split()
        if given.context is not None:
            given.context.mkdir(parents=True)
            prepare(given.context, targets, machine, commit_time)
            return 0
        program = engine()
        with tempfile.TemporaryDirectory(prefix="veen-images-") as folder:
            prepare(Path(folder), targets, machine, commit_time)
            made = build_images(
                Path(folder),
                targets,
                program=program,
                base=given.base,
                tag=given.tag,
                commit=(revision, commit_time),
            )
    except ImageError as exc:
        sys.stderr.write(f"images: {exc}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    print("\n".join(made))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
