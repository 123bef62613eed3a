"""The console: one static page, and the public read calls of a hub on the page's own origin (ADR 0030).

page            the page's bytes and the headers under which a browser runs it
access          access rules: the token, the Host and the site of a request
hub_listener    the listener of ``console`` in hub.yaml, in the hub's process
forwarding      the listener of ``veen console``, which forwards the same calls to a hub elsewhere
"""
