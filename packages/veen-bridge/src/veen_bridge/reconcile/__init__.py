"""Reconciliation: compares the source zone's exports with the target zone's imports (AGB0 4.7, J1, J2, K2).

``comparison`` compares two folded states and does no IO. ``live_sides`` folds them from hubs, ``file_sides``
reads them from bundles and exports, ``trace`` follows one event through the steps of K1.
"""
