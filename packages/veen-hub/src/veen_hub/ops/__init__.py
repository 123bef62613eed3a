"""Operating a hub: its settings, its view from outside, and its scheduled work.

``config``                        hub.yaml; ``init_rotate``: create a data directory, rotate its key
``logs``, ``metrics``, ``status_report`` what is read: ``/metrics``, ``/v1/status``
``readiness`` with ``authority_probe``   ``/readyz``
``upkeep`` with ``chores``        checkpoints and retention on schedule; ``anchors``: roots outside the hub;
                                  ``hub_anchor``: roots in another hub
``hub_log``                       hub checkpoints, witnesses and memories
``realm_follower``                the realm's admin streams; ``advertising``: the hub in a directory
``clock``, ``garbage``, ``process_memory``, ``stopping``   the process
"""
