"""Where the two servers differ on purpose, or cannot agree: the name of a case, and why.  What is not listed here must be the same."""

from __future__ import annotations

from collections.abc import Mapping

DIFFERENCES: Mapping[str, str] = {}
