"""Shared by the tests of all packages; pytest finds it through ``pythonpath`` in pyproject.toml.

``warm_start``    starts the project's servers in a tenth of the time; ``warm_server`` is its process
``warm_veen``     does the same for the ``veen`` of shells; ``warm_veen_server`` is its process
``ports``         ports for servers that start later
"""
