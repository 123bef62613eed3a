"""Requests to one hub: HTTP, typed endpoints, retries, and the shared context of a connection (§10)."""

from veen_hub.client.wire.connection import HubConnection
from veen_hub.client.wire.endpoints import Endpoints
from veen_hub.client.wire.retry import Retry
from veen_hub.client.wire.transport import Timeouts, Tls, Transport

__all__ = ["Endpoints", "HubConnection", "Retry", "Timeouts", "Tls", "Transport"]
