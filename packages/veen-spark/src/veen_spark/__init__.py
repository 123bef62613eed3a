"""Logs of any size: a Spark data source, distributed verification, folds and queries.

    from veen_spark import start

    spark = start()                                        # no Java, no configuration needed
    spark.read.format("veen").load("exports/*").show()

``start`` registers everything; ``register`` does so for a session that was made elsewhere. What is imported
here is light: pyspark is loaded when a session is there to be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veen_spark.session import prepare_environment, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["prepare_environment", "register", "start"]


def register(spark: SparkSession) -> None:
    """Make ``format("veen")`` known to a session, and set what the source relies on."""
    from veen_spark import source  # noqa: PLC0415 - loads pyspark
    from veen_spark.session import SETTINGS  # noqa: PLC0415

    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    source.register(spark)
