"""A monitor: follows the logs of hubs, and finds what contradicts what they signed (RESOLUTIONS P1-P3).

- ``rules``: the comparisons, without IO: two signed statements agree, or they are evidence;
- ``findings``: what a monitor holds against a hub, and which findings end;
- ``checkpoint_checks``, ``label_checks``, ``receipt_checks``: the checks, each against the sources below;
- ``label_proofs``: whether a hub proves that one tree of a label extends another;
- ``hub_identification``: whether the hub that answers is the pinned one;
- ``hub_source``, ``witness_source``, ``sightings``: what is read: hubs, witnesses, files of clients;
- ``memory``: what a monitor remembers of each hub, in LMDB or for one run;
- ``evidence_files``: files for a third party, which ``veen verify`` verifies offline;
- ``hub_monitor``, ``monitor``: the rounds, for one hub and for all;
- ``metrics``: findings and ages for Prometheus.
"""
