"""Discovery: advertised hubs, overlays and services, and queries over them (spec-5).

``records`` declares the records, ``publishers`` decides whose records count, ``state`` folds a discovery
stream, ``directory`` indexes the folded state, ``query`` answers ``disc.query.v1``, ``streams`` names the
streams and their public reader key, ``connecting`` chooses a hub and a service.
"""

from veen_overlays.discovery.directory import Directory
from veen_overlays.discovery.state import DISCOVERY, Listed, listing

__all__ = ["DISCOVERY", "OVERLAYS", "Directory", "Listed", "listing"]

OVERLAYS = (DISCOVERY,)
