"""The data directory of a sharded hub: several parts, one identity, one hub log (ADR 0033).

``sharded_layout`` names the folders and says which part owns a label; ``fence`` keeps a part to one process;
``joined_hub_log`` is the hub log over all parts; ``reshard`` moves a hub between numbers of shards; ``check``
is fsck and repair for all parts together.
"""
