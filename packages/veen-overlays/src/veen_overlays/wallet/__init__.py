"""WAL: wallets as a fold over their events (wallet-spec v0.0.1)."""
