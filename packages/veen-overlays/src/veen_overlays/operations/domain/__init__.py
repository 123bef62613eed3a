"""The domain of a stream: how payments, grants and delegated executions change one state (spec-3 §2 to §4).

``state`` is the state after a prefix, ``changes`` what events have changed in it, ``advance`` applies events
in stream order. ``payments``, ``capabilities`` and ``delegated`` are the rules of spec-3 §2, §3 and §4.
"""
