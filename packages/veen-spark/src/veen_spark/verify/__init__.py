"""Distributed verification: every signature, hash and root of logs of any size (§4.8, §5, §7, §8.4)."""

from veen_spark.verify.pipeline import verify
from veen_spark.verify.report import LabelReport, Report

__all__ = ["LabelReport", "Report", "verify"]
