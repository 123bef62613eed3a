"""Evidence across an air gap, and mirrors between hubs (AGB0, ANCHOR0.3, RESOLUTIONS P4 to P9).

``exporting`` writes ranges of streams into bundles, ``bundles`` reads, writes and verifies their files,
``importing`` writes their events to another hub, ``reconcile`` compares both zones. ``mirror`` copies streams
live. ``transfer`` makes the copies, ``roles`` holds the configuration and the keys, and ``commands`` is
``veen bridge …``. A hub is reached only through ``veen_hub.client``.
"""
