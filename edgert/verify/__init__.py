"""Reading a whole model and trusting nothing of it."""

from edgert.verify.findings import Finding, Report
from edgert.verify.verify import verify

__all__ = ["Finding", "Report", "verify"]
