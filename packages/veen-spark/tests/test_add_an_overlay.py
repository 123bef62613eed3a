"""The guide "Add an overlay": its module alone reaches the registry, veen fold, the reference and Spark.

The tests of veen-cli run the commands of the guide.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guides" / "add-an-overlay.md"
TESTS = ROOT / "packages" / "veen-overlays" / "tests"

SEE_IT = """
import importlib.util, json, sys
spec = importlib.util.find_spec("veen_overlays")
spec.submodule_search_locations.append(sys.argv[1])  # as if the module were saved in the package
sys.modules["veen_overlays"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.fold.event import Message
from veen_overlays.schema.reference import reference
from veen_overlays.temperature import Reading
from veen_cli.commands import reference as commands
from veen_cli.overlays.fold import fold
from veen_spark.fold.states import state_rows, state_schema

sys.path[:0] = sys.argv[2:]  # as if the guide's test were saved next to the tests of the package
import test_temperature
test_temperature.test_an_older_reading_that_arrives_late_is_not_the_latest()

overlay = OVERLAYS["example.temperatures"]
readings = [Reading(sensor="roof", tenths=t, ts=ts) for t, ts in ((214, 20), (187, 30), (190, 10))]
log = [Message(n, bytes([n]) * 32, r.SCHEMA, r.encode()) for n, r in enumerate(readings, 1)]
view = overlay.view(overlay.fold(log).inner)
parts = [overlay.fold(log[:1]), overlay.fold(log[1:])]
assert overlay.encode(overlay.combine(*parts)) == overlay.encode(overlay.fold(log))
print(json.dumps({
    "state": view,
    "veen fold": any(overlay.name in getattr(each.type, "choices", ()) for each in fold.params),
    "reference": "example.temperature.v1" in reference(OVERLAYS.values()),
    "help": [name for name in commands.PAGES if "example.temperatures" in commands.generate_page(name)],
    "columns": state_schema(overlay).names,
    "rows": [list(map(str, row)) for row in state_rows(overlay, view)],
}))
"""


def test_the_module_of_the_guide_is_all_that_an_overlay_needs(tmp_path: Path) -> None:
    blocks = re.findall(r"`([^`]+)`:\n\n```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    saved = {Path(name).name: content for name, content in blocks}
    (package := tmp_path / "package").mkdir()
    (package / "temperature.py").write_text(saved["temperature.py"], "utf-8")
    (tmp_path / "test_temperature.py").write_text(saved["test_temperature.py"], "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SEE_IT, package, tmp_path, TESTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "state": [{"sensor": "roof", "latest": 187, "highest": 214}],
        "veen fold": True,
        "reference": True,
        "help": [],  # else the pages of the command reference would be out of date
        "columns": ["label", "upto_seq", "mmr_root", "sensor", "latest", "highest"],
        "rows": [["roof", "187", "214"]],
    }
