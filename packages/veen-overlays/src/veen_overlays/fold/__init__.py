"""The framework of overlays: events, monoids, the overlay as a value, and the registry.

``event`` defines messages and events, ``monoid`` the building blocks of summaries, ``layers`` immutable maps
that grow cheaply, ``overlay`` the overlay itself, ``table`` the columns of a state, ``registry`` all overlays
by name.
"""
