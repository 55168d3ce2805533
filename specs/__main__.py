"""Runs every check, one line for each claim; exits with 1 if one fails.

python -m specs             everything that fits into two minutes on two cores
python -m specs --huge      the line of four processes as well: minutes, gigabytes
python -m specs WORD...     only claims that have a word in their name or requirement
python -m specs mutants     plants every mistake and counts those that are caught; with a NAME, tells how that one is seen
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from specs import mutants, spin
from specs.claims import CLAIMS, Broken, Claim


def run(name: str) -> tuple[str, bool, str, float]:
    claim = next(claim for claim in CLAIMS if claim.name == name)
    start = time.perf_counter()
    try:
        seen, holds = claim.check(), True
    except (Broken, spin.SpinError) as error:
        seen, holds = str(error), False
    return name, holds, seen, time.perf_counter() - start


def chosen(words: list[str], huge: bool) -> list[Claim]:
    claims = [claim for claim in CLAIMS if huge or not claim.huge]
    return [claim for claim in claims if not words or any(word in f"{claim.name} {claim.about}" for word in words)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m specs", description="Check every claim about the machines.")
    parser.add_argument("words", nargs="*", help="only claims that have one of these in their name or requirement")
    parser.add_argument("--huge", action="store_true", help="also what takes minutes and gigabytes")
    options = parser.parse_args()
    if options.words[:1] == ["mutants"]:
        return mutants.main(options.words[1:])
    claims = chosen(options.words, options.huge)
    if not claims:
        parser.error("no claim has such a word")
    failed = 0
    with ProcessPoolExecutor(max_workers=2) as pool:
        for done in as_completed(pool.submit(run, claim.name) for claim in claims):
            name, holds, seen, seconds = done.result()
            failed += not holds
            print(f"{'holds' if holds else 'FAILS'}  {seconds:6.1f} s  {name}: {seen}", flush=True)
    print(f"{len(claims) - failed} of {len(claims)} claims hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
