"""The drivers that follow a log, keep a view and serve queries.

The one module of this package that may touch a clock, a socket or an event loop; no
other module here imports it. Nothing is built yet.
"""
