"""Identity folders: keys, identity card, and the state that the identity keeps about hubs."""
