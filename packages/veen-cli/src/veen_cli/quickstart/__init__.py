"""``veen quickstart``: the whole model in a few seconds, on a real hub.

Read in this order: ``world`` (a folder, three identities, a hub process), ``story`` (what happens, and what
is verified), ``tamper`` (one bit on disk), ``onward`` (how to go on by hand), ``narration`` (how it is told)
and ``command``.
"""
