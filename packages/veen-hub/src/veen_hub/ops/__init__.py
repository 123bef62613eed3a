"""Operating a hub: configuration, logs, metrics, anchors, and scheduled work (checkpoints, retention)."""
