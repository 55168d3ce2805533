"""`python -m specs mutants`: plants every mistake and counts those that are caught; with a NAME, tells how that one is seen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from specs.planted import PLANTED
from specs.planting import CHECKPOINTS_CLAIMS, LINE_CLAIMS, OWNER_CLAIMS, SLOTS_CLAIMS
from specs.story import tell
from specs.worlds import budget_claims, encoder_claims

# What is not an invariant: a goal that is out of reach, and what a fair run may stay in.
_CLAIMS = (LINE_CLAIMS, OWNER_CLAIMS, SLOTS_CLAIMS, CHECKPOINTS_CLAIMS)
_GOALS = {goal for claims in _CLAIMS for goal in claims.goals} | {*budget_claims.GOALS}
_PASSING = {region for claims in _CLAIMS for region in claims.passing} | {*budget_claims.PASSING, *encoder_claims.PASSING}
WHAT_IT_MEANS = dict.fromkeys(_GOALS, "this is out of reach for ever") | dict.fromkeys(_PASSING, "this may last for ever")


def hunt(name: str) -> tuple[str, str, float]:
    """The name, why it was not caught as it should ("" if it was), and seconds."""
    start = time.perf_counter()
    mistake = PLANTED[name]
    found = mistake.find()
    seen = None if found is None else (found[0], len(found[1]))
    wrong = ""
    if seen != (mistake.claim, mistake.steps):
        wrong = f"expected {mistake.claim!r} in {mistake.steps} steps, found {seen or 'nothing'}"
    return name, wrong, time.perf_counter() - start


def run_all() -> tuple[int, int]:
    """Caught, and total; one line for each on the way."""
    caught = 0
    with ProcessPoolExecutor(max_workers=2) as pool:
        for done in as_completed(pool.submit(hunt, name) for name in PLANTED):
            name, wrong, seconds = done.result()
            mistake = PLANTED[name]
            caught += not wrong
            result = wrong or f"{mistake.claim!r} in {mistake.steps} steps"
            print(f"{'FAILS ' if wrong else 'caught'} {seconds:6.1f} s  {mistake.world} {mistake.about}  {name}: {result}", flush=True)
    return caught, len(PLANTED)


def story(name: str) -> Iterator[str]:
    """Raises KeyError: nothing of that name is planted."""
    mistake = PLANTED[name]
    found = mistake.find()
    yield f"{mistake.name} ({mistake.about}), in the world of the {mistake.world}"
    if found is None:
        yield "not caught"
        return
    claim, path = found
    yield from tell(mistake.world, path)
    yield f"so after {len(path)} steps {WHAT_IT_MEANS.get(claim, 'this claim fails')}: {claim}"


def main(words: list[str]) -> int:
    if words:
        names = [name for name in PLANTED if " ".join(words) in name]
        for name in names:
            print("\n".join(story(name)), end="\n\n")
        if not names:
            print(f"nothing is planted under that name; there are: {'; '.join(PLANTED)}")
        return 0 if names else 1
    caught, total = run_all()
    print(f"{caught} of {total} planted mistakes are caught")
    return 0 if caught == total else 1
