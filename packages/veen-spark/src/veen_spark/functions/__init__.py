"""SQL functions, opening of messages, and the keys they need."""
