"""The ``veen`` command: ``frame`` is the command kit; the other folders contain the commands."""

__version__ = "0.1.0"
"""A copy of the distribution's version: reading its metadata would slow down ``veen --version``."""
