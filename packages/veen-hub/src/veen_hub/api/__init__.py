"""The hub's API without a transport (§10, DR0): endpoints that take an ``ApiRequest`` and return a reply.

``routes`` lists every endpoint once and finds the one that a request names. ``submit`` receives messages,
``reading`` and ``attachments`` serve the log, ``tooling`` serves admins, ``probes`` serves operators.
``content`` bounds and decodes bodies; ``errors`` is the only place that turns an error into an answer.

A transport is an adapter: it makes an ``ApiRequest`` from what arrived, calls the endpoint, and sends the
reply. Rules are here and not in the adapters, so that every transport gives the same answers.
"""
