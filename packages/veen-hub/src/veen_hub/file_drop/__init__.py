"""Drop folders as a transport of the API (DR0): requests in, replies out, for links that carry files one way.

``envelopes`` is what hub and client agree on: names of files and their content. ``files`` writes and reads
them. ``service`` is the hub's side; the client's is ``veen_hub.client.wire.file_transport``.
"""
