"""Counts of one model since it was loaded."""

from __future__ import annotations

from dataclasses import dataclass, field

from lsm.values import Counters


@dataclass(slots=True)
class Tally:
    """Seconds are summed over requests, as their timings are: two requests in one batch count its time twice."""

    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    prompt_ns: int = 0
    predicted_tokens: int = 0
    predicted_ns: int = 0
    decode_calls: int = 0
    busy_slots: int = 0
    tokens_max: int = 0
    draft_tokens: int = 0
    draft_tokens_accepted: int = 0
    drafts: int = 0
    accepted_per_position: list[int] = field(default_factory=list)

    def prompt(self, n_tokens: int, elapsed_ns: int) -> None:
        self.prompt_tokens += n_tokens
        self.prompt_ns += elapsed_ns

    def decoded(self, n_slots: int) -> None:
        self.decode_calls += 1
        self.busy_slots += n_slots

    def verified(self, n_drafted: int, n_accepted: int) -> None:
        self.draft_tokens += n_drafted
        self.draft_tokens_accepted += n_accepted
        self.drafts += 1
        per_position = self.accepted_per_position
        per_position.extend([0] * (n_drafted - len(per_position)))
        for i in range(n_accepted):
            per_position[i] += 1

    def counters(self, processing: int, waiting: int) -> Counters:
        return Counters(
            prompt_tokens=self.prompt_tokens,
            prompt_tokens_cached=self.prompt_tokens_cached,
            prompt_seconds=self.prompt_ns / 1e9,
            predicted_tokens=self.predicted_tokens,
            predicted_seconds=self.predicted_ns / 1e9,
            decode_calls=self.decode_calls,
            busy_slots=self.busy_slots,
            tokens_max=self.tokens_max,
            draft_tokens=self.draft_tokens,
            draft_tokens_accepted=self.draft_tokens_accepted,
            drafts=self.drafts,
            accepted_per_position=tuple(self.accepted_per_position),
            requests_processing=processing,
            requests_waiting=waiting,
        )
