"""Importing bundles into the target zone (AGB0 4.5): verify, map, write events, report.

``admission`` decides without IO whether a bundle may be imported, ``bundle_import`` writes its events exactly
once, ``audit`` reads and writes bridge/offline/log.
"""
