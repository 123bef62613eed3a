"""hub.yaml: every setting, declared once, with its type, default and bounds (spec-4 §4.3, §5.3).

hub_config   all settings, their bounds, and the rules between them
sections     the sections of hub.yaml; ``hub_log``, ``discovery`` and ``console`` have modules of their own
loading      the settings from flags, environment and file
schema       typed settings from untyped ones; ``veen_hub.yaml_file`` reads those from a file
addresses    checks of addresses and of their certificate authorities
"""

from veen_hub.ops.config.console import ConsoleSettings
from veen_hub.ops.config.hub_config import INT_MAX, HubConfig
from veen_hub.ops.config.loading import ENVIRONMENT, from_environment, load
from veen_hub.ops.config.sections import (
    AnchorSettings,
    AttachmentLimits,
    ClientKeys,
    Network,
    RealmSettings,
    RetentionRule,
    Tls,
)

__all__ = [
    "ENVIRONMENT",
    "INT_MAX",
    "AnchorSettings",
    "AttachmentLimits",
    "ClientKeys",
    "ConsoleSettings",
    "HubConfig",
    "Network",
    "RealmSettings",
    "RetentionRule",
    "Tls",
    "from_environment",
    "load",
]
