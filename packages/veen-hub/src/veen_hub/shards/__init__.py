"""A hub with several shards: processes that order messages, each with labels of its own (ADR 0033).

The coordinator is the process that was started. It starts one process per shard, restarts one that died,
keeps control label, attachments and the hub log, and answers every request that is not about one label.
Each shard's process listens at the hub's address and passes on what another part owns.

| module | content |
|---|---|
| ``coordinator``, ``control_hub`` | the coordinator: its processes; its part of the data directory |
| ``shard_runner`` | one shard's process as the coordinator sees it: start, fence, restart |
| ``joining`` | the hub log over all parts, and tokens for all parts: what must happen in one order |
| ``merging`` | the journal over all parts, for replicas |
| ``gate_copy``, ``handing_over`` | the signing gate in every shard; handing over to a successor |
| ``anchoring`` | the anchor backend of the coordinator, for the shards |
| ``shard_process``, ``shard_hub`` | one shard's process, and its part of the data directory |
| ``routing``, ``submit_link``, ``forwarding`` | passing requests on to the owner |
| ``part_calls`` | the calls between coordinator and shard |
| ``merged_metrics``, ``merged_answers`` | answers about the whole hub from those of its parts |
"""
