"""The Query API on Spark: the answers of every other engine, over logs of any size (query-api, ADR 0020).

log_view        rows from exports and clones: verified, found (``log_sources``), opened (``log_rows``)
view_folder     rows from a view that a follower has written
engine          ``SparkEngine``: a query over rows of opened events
evidence        the evidence of an answer (``tree_nodes``), and the result file
event_rows      the columns of these rows, and Arrow batches as events
prefix_rows     the rows of the prefixes that a query reads, counted
selecting       queries for rows
aggregating     aggregate queries
"""
