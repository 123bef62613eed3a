"""``veen quickstart``: how VEEN works, shown in a few seconds on a real hub.

Read in this order: ``world`` (a folder, three identities, a hub process), ``story`` (messages are sent,
read and verified), ``tamper`` (one bit is flipped on disk), ``next_commands`` (commands to continue by hand),
``narration`` (what is printed) and ``command``.
"""
