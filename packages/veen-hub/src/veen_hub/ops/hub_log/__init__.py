"""The hub log of a running hub: its cadence, its witnesses and its memories (RESOLUTIONS P1-P3).

service          signs hub checkpoints on time, once the memories agree
memories         what others remember of this hub's log
memory_sources   memories that are asked in turn; ``heads_file``: one on another volume
witnessing       rounds in which all witnesses cosign a checkpoint; ``witness_link``: one witness
"""

from veen_hub.ops.hub_log.service import HubLogService

__all__ = ["HubLogService"]
