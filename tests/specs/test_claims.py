"""Every claim of specs/README.md is checked here, with the numbers that stand in specs/claims.py."""

from __future__ import annotations

import pytest

from specs import spin
from specs.claims import CLAIMS, Claim

NEEDS_SPIN = pytest.mark.skipif(not spin.available(), reason=spin.REMEDY)


def marks(claim: Claim) -> list[pytest.MarkDecorator]:
    return [*([pytest.mark.slow] if claim.slow else []), *([NEEDS_SPIN] if claim.spin else [])]


@pytest.mark.parametrize("claim", [pytest.param(claim, id=claim.name, marks=marks(claim)) for claim in CLAIMS if not claim.huge])
def test_claim(claim: Claim) -> None:
    """S1, S2, S3, S6, S7, S8, S10: each claim names what it is about."""
    assert claim.check()
