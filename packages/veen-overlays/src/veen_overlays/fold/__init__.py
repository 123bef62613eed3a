"""The framework of overlays: events, monoids, the overlay as a value, and the registry.

``event`` is what a fold sees of a message, ``monoid`` the building blocks of summaries, ``layers`` their
large maps, ``overlay`` the overlay itself, ``table`` the columns of its state, ``registry`` all overlays by
name.
"""
