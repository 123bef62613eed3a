"""Replica and handover: a second hub with the same log, and the end of a hub in favour of its successor (P9).

- ``items``, ``source``: what a hub sends to its replicas;
- ``announcements``: wakes the connections of replicas;
- ``primary``: the replica's connection to its primary;
- ``preparation``: the first copy, and the primary's new keys, before the data directory is opened;
- ``follower``: follows the primary while the replica runs;
- ``divergence``: evidence against a primary that contradicts its replica;
- ``handover``: the last statement of a hub.
"""
