"""Holds traces of real runs against the tables: what `lsm verify` does.  Pure but for the reading of files."""

from __future__ import annotations

from lsm.verify.checks import DEFAULTS, Limits, Verdict, verify
from lsm.verify.reading import Trace, read_traces
from lsm.verify.record import Record, TraceError
from lsm.verify.story import Story, tell

__all__ = ["DEFAULTS", "Limits", "Record", "Story", "Trace", "TraceError", "Verdict", "read_traces", "tell", "verify"]
