"""Commands that write the records of an overlay and show what they fold to.

``overlay_stream`` connects a command to a stream and its folded view; every other module is a command group.
"""
