"""HTTP/3 as a transport of the API (DR0): the same endpoints, headers and bodies over QUIC, with TLS 1.3.

``windows`` bounds what a peer may send before it is read; hub and client use it. ``listener`` is the hub's
UDP socket, ``connection`` its connections and requests. The client's side is
``veen_hub.client.wire.h3_transport``.
"""
