"""Folding: an overlay's state from a log of any size.

folding        ``fold``: the steps, and the check that every label is complete
ranges         one task: open, decode and fold its rows            → one summary per range
fingerprints   how duplicates between ranges are found and resolved
duplicates     the same steps, run with Spark
merging        summaries of ranges                                  → one state per label
states         a state as a table
"""
