"""Bundles: a range of a label's log with its evidence, in files that cross an air gap (P6, AGB0 4.4).

``header`` declares what a bundle says, and ``part`` the layout of its files. ``header_rules`` verifies a
header, ``chain`` the step from one bundle to the next, ``records`` parses the content of a part from blocks,
and ``verifier`` verifies a whole bundle in bounded memory. Nothing here reads a file.
"""

from veen_core.bundle.chain import verify_chain_step
from veen_core.bundle.header import (
    AttachmentRule,
    BundleCounts,
    BundleHeader,
    HeadProof,
    PartDigest,
    PartRow,
    bundle_id,
    sign_bundle,
)
from veen_core.bundle.header_rules import BundleTrust, verify_header
from veen_core.bundle.part import BundleError, IndexedAttachment, PartIndex, PartTrailer
from veen_core.bundle.verifier import BundleVerdict, BundleVerifier, PartVerifier

__all__ = [
    "AttachmentRule",
    "BundleCounts",
    "BundleError",
    "BundleHeader",
    "BundleTrust",
    "BundleVerdict",
    "BundleVerifier",
    "HeadProof",
    "IndexedAttachment",
    "PartDigest",
    "PartIndex",
    "PartRow",
    "PartTrailer",
    "PartVerifier",
    "bundle_id",
    "sign_bundle",
    "verify_chain_step",
    "verify_header",
]
