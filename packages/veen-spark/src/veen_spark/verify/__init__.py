"""Distributed verification: every signature, hash and root of logs of any size (core §4.8, §5, §7, §8.4).

pipeline            the steps, and ``verify`` itself
origin              the folder of a log: hub identity, registry, manifest
artifacts           checkpoints, peaks and summaries next to the entries
subtrees            the tree hashes of a segment whose predecessors are unknown
segment_verifier    one task: all entries of one segment            → Verdict
report              verdicts in log order                           → LabelReport
missing_entries     entries and labels that the folder should hold
histories_agree     several copies of one label have the same history
hub_log             the hub log against the labels
tasks               tasks on Spark, and records that move between them
"""

from veen_spark.verify.pipeline import verify
from veen_spark.verify.report import HubLogReport, LabelReport, VerificationReport

__all__ = ["HubLogReport", "LabelReport", "VerificationReport", "verify"]
