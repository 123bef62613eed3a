"""``EventView``: the rows of opened events that queries read, with identities and proofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.evidence import HubLogLink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """Rows of opened events, and the prefixes of logs that they cover."""

    frame: DataFrame
    """One row for each entry of each source, with the columns of ``VIEW_SCHEMA``."""
    prefixes: tuple[Prefix, ...]
    """Every source with all of its entries."""
    identities: Mapping[HubId, HubIdentity] = field(default_factory=dict)
    """The verified identities of the hubs."""
    homes: Mapping[str, HubId] = field(default_factory=dict)
    """The known streams, each with the hub that the coverage names if the stream is empty."""
    links: Mapping[bytes, HubLogLink] = field(default_factory=dict)
    """The proofs up to a hub checkpoint, by label, where one is known."""
