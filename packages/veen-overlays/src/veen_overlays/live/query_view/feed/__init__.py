"""From logs to rows: the feeds that a view reads, and the follower that keeps it up to date."""
