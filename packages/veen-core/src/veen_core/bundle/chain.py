"""The chain of bundles: each names the one before it of the same source hub, stream and bridge (P6).

A stream with epochs has several labels. Its bundles form one chain, so that a lost bundle is noticed whatever
its label. Within a label, a bundle also names the one that ended right before it (``prev_in_label``), and
continues its tree. A range that was exported again joins the chain, and continues an older bundle or none.
"""

from __future__ import annotations

from veen_core.bundle.header import BundleHeader, bundle_id
from veen_core.bundle.part import BundleError


def verify_chain_step(previous: BundleHeader, header: BundleHeader) -> None:
    """Raise ``BundleError`` unless ``header`` is the next bundle of the chain after ``previous``.

    Both headers must have been verified.
    """
    if previous.hub_id != header.hub_id:
        raise BundleError(f"the previous bundle is of another hub, {previous.hub_id.hex()}")
    if previous.stream_id != header.stream_id:
        raise BundleError(f"the previous bundle is of another stream, {previous.stream!r}")
    if previous.bridge_id != header.bridge_id:
        raise BundleError(f"the previous bundle is of another bridge, {previous.bridge_id.hex()}")
    held = bundle_id(previous)
    if header.prev_bundle_id != held:
        raise BundleError(
            f"the bundle continues bundle {header.prev_bundle_id.hex()}, not {held.hex()}: a bundle is "
            "missing between them, or they are out of order",
            action="give the bundles of a stream in order, without leaving one out",
        )
    if previous.signed_head.head.size > header.signed_head.head.size:
        raise BundleError("the hub log is smaller than in the previous bundle", "RESOLUTIONS P1")
    if header.prev_in_label == held:
        verify_continuation(previous, header)


def verify_continuation(before: BundleHeader, header: BundleHeader) -> None:
    """Raise ``BundleError`` unless ``header`` continues its label exactly where ``before`` ended."""
    if header.prev_in_label != bundle_id(before):
        raise BundleError(
            f"prev_in_label names bundle {header.prev_in_label.hex()}, "
            f"not {bundle_id(before).hex()}, which ended right before this one"
        )
    if header.label != before.label:
        raise BundleError("the bundle that prev_in_label names is of another label")
    if header.from_seq != before.to_seq + 1:
        raise BundleError(
            f"entries {before.to_seq + 1} to {header.from_seq - 1} are in neither bundle"
            if header.from_seq > before.to_seq + 1
            else f"entries {header.from_seq} to {before.to_seq} are in both bundles",
            seq=header.from_seq,
        )
    if header.root_before != before.root_after:
        raise BundleError(
            "root_before is not the root after the previous bundle: the hub showed two histories",
            "core §5, RESOLUTIONS P6",
            seq=header.from_seq,
        )
    if header.from_ts < before.to_ts:
        raise BundleError(
            f"hub_ts goes back from {before.to_ts} to {header.from_ts}", "RESOLUTIONS H3", seq=header.from_seq
        )
