"""Copies of a hub, each made while the hub may be running.

- ``clone``: the same hub in another directory;
- ``fork``: a new hub that keeps an old hub's log as evidence (``fork_record``);
- ``export``: a range of one label, or all labels with the hub log, as a folder that verifies offline.

``consistent_prefix`` finds where a running hub can be cut. Import from these modules: each has the name of
its main function.
"""
