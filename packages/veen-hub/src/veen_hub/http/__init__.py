"""HTTP/1.1 as a transport of the API: listeners and connections with bounds, and TLS.

``exchange`` hands aiohttp's requests to the endpoints of ``veen_hub.api`` and sends their replies.
``connections`` has a short path for submits. ``veen_hub.server`` is the server with all its listeners.

``bounded_connection`` and ``bounded_listener`` know nothing of the hub; the witness uses them too.
"""
