"""The hub, and the client that talks to it.

Admission, sequencer, HTTP API, metrics, TLS and configuration of a hub, and
``veen_hub.client``, the asyncio client that every other package uses.
"""
