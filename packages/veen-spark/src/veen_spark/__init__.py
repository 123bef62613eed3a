"""Logs of any size: a Spark data source, distributed verification, folds and queries.

    from veen_spark import start

    spark = start()                                        # no Java, no configuration needed
    spark.read.format("veen").load("exports/*").show()

What is imported here is light; pyspark is loaded when a session is started.
"""

from veen_spark.session import prepare_environment, start

__all__ = ["prepare_environment", "start"]
