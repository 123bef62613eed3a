"""Live hubs as Spark streams, and folds kept up to date over them."""
