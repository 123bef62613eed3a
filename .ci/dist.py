"""Do the eight distributions work as wheels, together, in an environment of their own?

Usage: dist.py FOLDER. Builds every wheel into FOLDER, installs them into a new
environment beside them (third-party versions as in uv.lock), and there imports each
package and runs ``veen version``. Only this sees a wrong pin between two siblings, a
file missing from a wheel, or a console script that does not start.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEMBERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
NAMES = sorted(Path(member).name for member in MEMBERS)


def uv(*args: str | Path) -> None:
    subprocess.run(["uv", "--quiet", *args], cwd=ROOT, check=True)


def said(program: Path, *args: str) -> str:
    return subprocess.run(
        [program, *args], cwd=program.parent, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def missing_from(wheel: Path) -> list[str]:
    """What every wheel has to hold and this one does not."""
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
    package = wheel.name.split("-")[0]
    wanted = (f"{package}/__init__.py", f"{package}/py.typed", ".dist-info/licenses/LICENSE")
    return [name for name in wanted if not any(file.endswith(name) for file in files)]


def write_sums(folder: Path, wheels: list[Path]) -> None:
    """Write SHA256SUMS over the wheels and the verifier page in veen-hub's; a release signs this file."""
    [hub] = [wheel for wheel in wheels if wheel.name.startswith("veen_hub-")]
    with zipfile.ZipFile(hub) as archive:
        page = archive.read("veen_hub/web/verify.html")
    held = {wheel.name: wheel.read_bytes() for wheel in wheels} | {"verify.html": page}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in sorted(held.items())]
    (folder / "verify.html").write_bytes(page)
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def main(folder: Path) -> None:
    wheels, clean, pins = folder / "wheels", folder / "clean", folder / "pins.txt"
    uv("build", "--all-packages", "--wheel", "--clear", "--out-dir", wheels)
    built = sorted(wheels.glob("*.whl"))
    if len(built) != len(NAMES):
        sys.exit(f"built {len(built)} wheels, the workspace has {len(NAMES)} members")
    for wheel in built:
        if missing := missing_from(wheel):
            sys.exit(f"{wheel.name} lacks {', '.join(missing)}")

    write_sums(wheels, built)
    uv("export", "--frozen", "--all-packages", "--no-dev", "--no-emit-workspace", "--no-hashes", "-o", pins)
    uv("venv", "--clear", "--no-project", "--python", sys.executable, clean)
    # By file, not by name: nothing of ours is ever looked up in an index.
    uv("pip", "install", "--reinstall", "--python", clean, "--constraints", pins, *built)

    for name in NAMES:
        said(clean / "bin" / "python", "-I", "-W", "error", "-c", f"import {name.replace('-', '_')}")
    installed = json.loads(said(clean / "bin" / "veen", "version", "--json"))["packages"]
    if sorted(installed) != NAMES:
        sys.exit(f"veen version lists {sorted(installed)}, the workspace has {NAMES}")
    said(clean / "bin" / "veen", "quickstart", "--quiet")  # a real hub, from nothing but the wheels
    print(f"{len(built)} wheels built, installed together and imported; veen lists them all and runs")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except subprocess.CalledProcessError as failed:
        sys.exit(f"failed, see above: {shlex.join(map(str, failed.cmd))}")
