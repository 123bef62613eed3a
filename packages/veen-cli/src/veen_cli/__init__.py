"""The ``veen`` command.

``main`` is where the process starts and ends, ``commands`` finds the command groups
that other distributions bring, ``exits`` names the exit codes.
"""
