"""The audit: every attack of the design's section 7, run on honest transcripts of both profiles beside a blind guess."""

from crowdfl.lab.audit.finding import Finding, Verdict
from crowdfl.lab.audit.report import DEFAULT, QUICK, AuditReport, Scale, run_audit

__all__ = ["DEFAULT", "QUICK", "AuditReport", "Finding", "Scale", "Verdict", "run_audit"]
