"""Durable client state: small files replaced atomically (RESYNC0.4)."""
