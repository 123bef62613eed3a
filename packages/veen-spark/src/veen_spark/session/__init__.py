"""Starting Spark: session, Java and master."""
