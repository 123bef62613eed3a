"""J2: no event is lost silently or imported twice; gaps and repeated bundles are refused (AGB0 4.5, 4.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from veen_core.ids import Signature
from veen_selftest.bridge.zones import AUDIT, IMPORT, REFUSED_EXIT_CODE, bridged_zones
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext


def _gaps(context: CheckContext) -> None:
    """A repeated bundle and a gap are refused and recorded, and reconciliation names the missing bundle."""
    with bridged_zones(context) as zones:
        folders = []
        for number in range(3):
            zones.send([f"event {number} {n}" for n in range(4)])
            folders.append(zones.export(str(number)))
        require_equal(zones.import_(folders[0])[0], 0, "exit code of the first import")
        code, result = zones.import_(folders[0], folders[2])
        refusals = [each.get("code") for each in result["bundles"]]
        require_equal(
            (code, refusals),
            (REFUSED_EXIT_CODE, ["ALREADY_IMPORTED", "GAP"]),
            "import of a repeated bundle and after a gap",
        )
        require_equal(len(zones.read(IMPORT)), 4, "events after two refusals")
        code, found = zones.reconcile()
        require_equal(code, REFUSED_EXIT_CODE, "exit code of reconcile while bundles are missing")
        require_equal([each["kind"] for each in found["findings"]], ["missing"] * 2, "findings")
        require_equal(found["regions"][0]["to_seq"], 4, "end of the consistent region (K2)")
        require_equal(zones.import_(folders[1], folders[2])[0], 0, "exit code of the missing imports")
        require_equal(zones.reconcile()[0], 0, "exit code of reconcile after all imports")
        require_equal(len(zones.read(AUDIT)), 6, "the mapping and the reports in bridge/offline/log")


def _damage(context: CheckContext) -> None:
    """A bundle with one wrong bit is refused as a whole, and the refusal is recorded."""
    rng = context.rng
    with bridged_zones(context) as zones:
        receipts = zones.send([f"event {n}" for n in range(20)])
        folder = zones.export("damaged")
        path = next(Path(folder).glob("*.veenb"))
        content = path.read_bytes()
        # Only a verification of the whole bundle before the first write finds a wrong signature.
        signature = content.index(receipts[-1].hub_sig) + rng.randrange(Signature.SIZE)
        for place in (signature, rng.randrange(len(content))):
            path.write_bytes(_with_wrong_bit(content, place, rng.randrange(8)))
            code, result = zones.import_(folder)
            found = code, result["bundles"][0]["result"]
            require_equal(
                found, (REFUSED_EXIT_CODE, "refused"), f"import of a bundle with a wrong bit in byte {place}"
            )
        require_equal(len(zones.read(IMPORT)), 0, "events of the damaged bundle (AGB0 4.5)")
        require_equal(len(zones.read(AUDIT)), 2, "reports of the refusals")


def _with_wrong_bit(content: bytes, place: int, bit: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


CHECKS: Final = (
    Check("bridge.no-silent-loss", "AGB0 J2, 4.7", _gaps),
    Check("bridge.damaged-bundle", "AGB0 4.4, 4.5", _damage),
)
