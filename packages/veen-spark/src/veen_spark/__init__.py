"""Logs of any size on Spark: a data source, distributed verification, folds and queries.

    from veen_spark import start

    spark = start()                                        # needs no Java and no configuration
    spark.read.format("veen").load("exports/*").show()

``start`` creates a session and registers the data source and the SQL functions; ``register`` does so for an
existing session. Names are imported on first use, because ``veen --help`` loads this package too.

    read/       log files as rows            fold/       overlay states from rows
    stream/     a live hub as rows           functions/  reader keys, opening, SQL functions
    verify/     the audit of logs            session/    starting Spark
    query/      the Query API             commands/   ``veen spark …``
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veen_spark.fold.folding import fold
    from veen_spark.fold.states import state
    from veen_spark.functions.open import open_messages
    from veen_spark.functions.reader_keys import ReaderKeys
    from veen_spark.session.session import prepare_environment, start
    from veen_spark.stream.live_fold import LiveFold

__all__ = [
    "LiveFold",
    "ReaderKeys",
    "fold",
    "open_messages",
    "prepare_environment",
    "register",
    "start",
    "state",
]

_MODULES: Final = {
    "LiveFold": "veen_spark.stream.live_fold",
    "ReaderKeys": "veen_spark.functions.reader_keys",
    "fold": "veen_spark.fold.folding",
    "open_messages": "veen_spark.functions.open",
    "prepare_environment": "veen_spark.session.session",
    "start": "veen_spark.session.session",
    "state": "veen_spark.fold.states",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def register(spark: SparkSession) -> None:
    """Register ``format("veen")`` and the SQL functions with a session, and set the options they need."""
    from veen_spark.functions import sql  # noqa: PLC0415 - loads pyspark
    from veen_spark.read import source  # noqa: PLC0415 - loads pyspark
    from veen_spark.session.session import SETTINGS  # noqa: PLC0415

    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    source.register(spark)
    sql.register(spark)
