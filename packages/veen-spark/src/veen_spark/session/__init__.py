"""Starting Spark: ``session`` creates it, ``java`` finds a Java, ``master`` checks the cluster's address."""
