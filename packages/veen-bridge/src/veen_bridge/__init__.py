"""Evidence that travels between hubs.

Mirrors between hubs, live or carried across an air gap, and their reconciliation.
Nothing is built yet.
"""
