"""Reading logs: the data source, its rows, and the walkers of each log form."""
