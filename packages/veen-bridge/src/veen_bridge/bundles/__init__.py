"""The files of bundles: written whole or not at all, read with bounded memory (RESOLUTIONS P6)."""

from veen_bridge.bundles.naming import SUFFIX
from veen_bridge.bundles.reader import BundleFiles, OpenedFiles, PartFile, open_bundles
from veen_bridge.bundles.verification import BundleReport, check_bundle, in_chain_order, verify_bundle

__all__ = [
    "SUFFIX",
    "BundleFiles",
    "BundleReport",
    "OpenedFiles",
    "PartFile",
    "check_bundle",
    "in_chain_order",
    "open_bundles",
    "verify_bundle",
]
