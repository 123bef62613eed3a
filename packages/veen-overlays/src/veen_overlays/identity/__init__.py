"""ID: principals, devices, accounts, organisations, handles, links and revocation (id-spec v0.0.1)."""
