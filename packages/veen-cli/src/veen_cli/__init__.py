"""The ``veen`` command: ``frame`` is the command kit; the other folders contain the commands."""
