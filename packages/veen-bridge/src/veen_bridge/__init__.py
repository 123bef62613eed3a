"""Reserved for copying logs between hubs; this package contains no code yet."""
