"""J2: no event is lost silently, none is doubled; gaps and repetitions are refused (AGB0 4.5, 4.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from veen_selftest.bridge.zones import AUDIT, IMPORT, bridged_zones
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext

REFUSED: Final = 3


def _gaps(context: CheckContext) -> None:
    """A repeated bundle and a gap are refused and recorded, and reconciliation names the missing bundle."""
    with bridged_zones(context) as zones:
        folders = []
        for number in range(3):
            zones.send([f"event {number} {n}" for n in range(4)])
            folders.append(zones.export(str(number)))
        require_equal(zones.import_(folders[0])[0], 0, "exit code of the first import")
        code, result = zones.import_(folders[0])
        require_equal((code, result["bundles"][0]["code"]), (REFUSED, "ALREADY_IMPORTED"), "second import")
        code, result = zones.import_(folders[2])
        require_equal((code, result["bundles"][0]["code"]), (REFUSED, "GAP"), "import after a gap")
        require_equal(len(zones.read(IMPORT)), 4, "events after two refusals")
        code, found = zones.reconcile()
        require_equal(code, REFUSED, "exit code of reconcile while bundles are missing")
        require_equal([each["kind"] for each in found["findings"]], ["missing"] * 2, "findings")
        require_equal(found["regions"][0]["to_seq"], 4, "end of the consistent region (K2)")
        require_equal(zones.import_(folders[1], folders[2])[0], 0, "exit code of the missing imports")
        require_equal(zones.reconcile()[0], 0, "exit code of reconcile after all imports")
        require(len(zones.read(AUDIT)) >= 5, "bridge/offline/log lacks a report of an import or a refusal")


def _damage(context: CheckContext) -> None:
    """A bundle with one wrong bit is refused as a whole, and the refusal is recorded."""
    with bridged_zones(context) as zones:
        zones.send([f"event {n}" for n in range(20)])
        folder = Path(zones.export("damaged"))
        path = next(folder.glob("*.veenb"))
        content = bytearray(path.read_bytes())
        content[context.rng.randrange(len(content))] ^= 1 << context.rng.randrange(8)
        path.write_bytes(content)
        code, result = zones.import_(str(folder))
        require_equal(
            (code, result["bundles"][0]["result"]), (REFUSED, "refused"), "import of a damaged bundle"
        )
        require_equal(len(zones.read(IMPORT)), 0, "events of the damaged bundle (AGB0 4.5)")
        require_equal(len(zones.read(AUDIT)), 1, "reports of the refusal")


CHECKS: Final = (
    Check("bridge.no-silent-loss", "AGB0 J2, 4.7", _gaps),
    Check("bridge.damaged-bundle", "AGB0 4.4, 4.5", _damage),
)
