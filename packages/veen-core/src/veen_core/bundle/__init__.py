"""Bundles: a range of a label's log with its evidence, in files that cross an air gap (P6, AGB0 4.4).

``header`` declares what a bundle says, ``part`` the layout of its files, ``header_rules`` and ``chain`` what a
header must obey, ``records`` reads the content of a part from blocks, and ``verifier`` verifies a whole
bundle in bounded memory. Nothing here reads a file.
"""

from veen_core.bundle.header import (
    FIRST,
    AttachmentRule,
    BundleCounts,
    BundleHeader,
    BundleId,
    HeadProof,
    PartDigest,
    PartRow,
    bundle_id,
    sign_bundle,
)
from veen_core.bundle.part import BundleError, PartIndex, PartTrailer

__all__ = [
    "FIRST",
    "AttachmentRule",
    "BundleCounts",
    "BundleError",
    "BundleHeader",
    "BundleId",
    "HeadProof",
    "PartDigest",
    "PartIndex",
    "PartRow",
    "PartTrailer",
    "bundle_id",
    "sign_bundle",
]
