"""Commands that send the records of an overlay and show the folded state.

``overlay_stream`` connects a command to a stream and its folded view; every other module is a command group.
"""
