"""The HTTP API (§10): listeners and connections, and handlers that decode, call the hub and reply.

``submit`` receives messages, ``reading`` and ``attachments`` serve the log, ``tooling`` serves admins, and
``probes`` serves operators on a listener of their own. ``errors`` is the only place that turns an error into
an answer.

``bounded_connection`` and ``bounded_listener`` know nothing of the hub; the witness uses them too.
"""
