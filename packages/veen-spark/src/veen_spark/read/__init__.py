"""Reading log files: ``spark.read.format("veen")``.

log_files      find the logs under a path                → segments
segment        one range of one label in one file
plan           split and group segments into partitions
walk           iterate over a segment: chunk_walk, pruned_walk, set_walk
field_layout   locate the fields of many entries at once, with numpy
rows           entries → Arrow batches with the columns of ``columns``
source         the data source itself, with options and pushdown
parquet        the same rows, written as partitioned Parquet
"""
