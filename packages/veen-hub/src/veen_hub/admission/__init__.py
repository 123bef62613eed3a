"""Admission: the decision to accept or refuse a message (§8.2), and the state that decision needs.

``stateless`` checks what a message says about itself; ``table`` checks it against the log, in the sequencer.
``labels``, ``class_rates``, ``policy``, ``replay_guard`` and ``attachment_quota`` hold the state outside the
log. ``authorization`` verifies and records cap tokens. ``admitter`` puts the parts together for one hub.
"""
