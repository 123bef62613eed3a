"""Producers of recorder events: a Python service records its events in three lines (SDR0 3.2).

    from veen_hub.client.roles import open_role
    from veen_overlays.live.recorder import RecorderHandler
    logging.getLogger("shop").addHandler(RecorderHandler(open_role("shop/recorder.yaml")))

``producer`` queues events and sends them in batches, ``log_handler`` is a handler of Python's ``logging``,
``log_processor`` is a processor for structlog.
"""

from veen_overlays.live.recorder.log_handler import RecorderHandler
from veen_overlays.live.recorder.log_processor import RecorderProcessor
from veen_overlays.live.recorder.producer import Recorder

__all__ = ["Recorder", "RecorderHandler", "RecorderProcessor"]
