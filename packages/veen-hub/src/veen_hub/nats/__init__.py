"""NATS as a transport of the API (DR0): subjects, replies in parts, and the hub as a NATS service.

``subjects`` and ``parts`` are what hub and client agree on. ``service`` serves requests, ``flow`` serves
followers. The client's side is ``veen_hub.client.wire.nats_transport``.

NATS stores nothing here: a message is durable when its receipt arrives, and not before.
"""
