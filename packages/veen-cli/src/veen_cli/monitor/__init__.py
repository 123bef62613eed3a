"""``veen monitor``: follow the logs of hubs, and prove what contradicts them."""
