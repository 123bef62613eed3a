"""The files of bundles: written whole or not at all, read with bounded memory (RESOLUTIONS P6)."""
