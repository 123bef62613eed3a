"""The Query API on Spark: the answers of every other engine, over logs of any size (query-api, ADR 0020).

engine          ``SparkEngine``: a query over rows of opened events
event_rows      the columns of these rows, and Arrow batches as events
prefix_rows     the rows of the prefixes that a query reads, counted
selecting       queries for rows
aggregating     aggregate queries
"""
