"""Transfer: a verified entry of a source log becomes one message of a target stream (RESOLUTIONS P4, P7, P8).

``copies`` makes the message in one of three modes, ``recognition`` tells whether a message of the target is
the copy of an entry, ``settling`` delivers what an earlier run left pending, ``resume`` finds how far the
target's log already holds a source label, and ``landing`` sends copies in order. The mirror and the import of
bundles use the same steps.

    await settle_pending(stream)                          # or the pending messages would be sent twice
    held = await find_held(messages, [cursor])            # P8: the target's log is the state
    async for origin, receipt in landing.send(entries):   # from the first entry that the target lacks
        ...
"""

from veen_bridge.transfer.copies import Copy, CopyMaker, Mode
from veen_bridge.transfer.landing import Landing, Sent
from veen_bridge.transfer.origin import OriginEntry
from veen_bridge.transfer.recognition import is_copy
from veen_bridge.transfer.resume import OriginCursor, Unmatched, find_held
from veen_bridge.transfer.settling import settle_pending

__all__ = [
    "Copy",
    "CopyMaker",
    "Landing",
    "Mode",
    "OriginCursor",
    "OriginEntry",
    "Sent",
    "Unmatched",
    "find_held",
    "is_copy",
    "settle_pending",
]
