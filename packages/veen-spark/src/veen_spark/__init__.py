"""Logs too large for one machine.

A Spark data source over exported logs, user-defined functions, and distributed
verification, folds and queries.
Nothing is built yet.
"""
