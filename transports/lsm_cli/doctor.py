"""`lsm doctor`: the findings, one a line, and the remedies below what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from lsm.doctor import Finding


def as_text(findings: Sequence[Finding]) -> str:
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{'WRONG' if finding.remedy else 'ok':<6}{finding.subject:<10} {finding.text}")
        if finding.remedy:
            lines.append(f"{'':<17}remedy: {finding.remedy}")
    n_wrong = sum(bool(finding.remedy) for finding in findings)
    return "\n".join([*lines, f"{n_wrong} of {len(findings)} are wrong" if n_wrong else "all is well"])
