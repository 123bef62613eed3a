"""Identity folders: keys, card, and what the identity knows of hubs."""
