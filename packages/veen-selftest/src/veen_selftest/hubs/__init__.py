"""The hubs under test: started here or found at a URL."""
