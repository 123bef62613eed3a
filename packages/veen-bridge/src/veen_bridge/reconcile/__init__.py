"""Reconciliation: compares the source zone's exports with the target zone's imports (AGB0 4.7, J1, J2, K2).

``comparison`` compares the two ``sides`` without IO and returns ``findings``. ``reading`` reads the sides
from ``zones`` (a hub, or an ``export_zone``) and from bundle files; ``resealed`` reads resealed events.
``trace`` follows one event through the steps of K1.
"""
