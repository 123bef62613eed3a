"""Commands that fetch one piece of evidence from a hub, show it, and verify it.

``receipt``, ``proof``, ``checkpoint``, ``consistency``   one command group each
``fetch_commands``                                        what the four have in common
"""
