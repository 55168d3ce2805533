"""A request on its way: its text, its limits, its times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lsm.engine.outputs import Job
from lsm.engine.ports import OwnedInstance, Sampler
from lsm.engine.prefix import Tokens
from lsm.engine.prompt_cache import Held, Scales
from lsm.engine.speculation.synthetic import Die
from lsm.engine.text import TextStream
from lsm.errors import LsmError
from lsm.values import Embedding, Finish, Progress, StopType, Text, Timings, TokenProbs


class Request:
    """What the scheduler knows of one choice of a job.  Times count only while a batch with a token of it is decoded."""

    def __init__(self, job: Job, index: int, machine: OwnedInstance) -> None:
        self.id = job.id
        self.index = index  # of the choice
        self.prompt = job.prompt
        self.media = job.media
        self.adapters: Scales = ()  # the scales of the LoRA adapters that act when it starts
        self.spans = tuple(media.span for media in job.media)
        self.user_starts = job.user_starts
        self.options = job.options
        self.embed = job.embed
        self.vectors: list[NDArray[np.float32]] = []  # of the tokens so far, where each has its own
        self.source: Tokens | None = None  # what an encoder has to read before the prompt is decoded
        self.n_source = 0
        self.machine = machine
        self.sampler: Sampler | None = None
        self.n_look_back = 0  # tokens of the prompt that the sampler wants to know
        self.text = TextStream(job.options.stop)
        self.slot_id: int | None = None
        self.sampled: int | None = None  # the latest token; not in the cache yet
        self.cache_n = 0
        self.prompt_n = 0
        self.predicted_n = 0
        self.prompt_ns = 0
        self.predicted_ns = 0
        self.has_new_line = False  # in the answer so far
        self.pending: Tokens = np.zeros(0, np.int32)  # tokens before it that left the cache with a draft, and are decoded again
        self.draft_n = self.draft_n_accepted = 0
        self.die: Die | None = None  # of synthetic acceptance
        self.is_shifted = False  # the beginning of what follows `n_keep` has left the context
        self.finish: Finish | Embedding | None = None
        self.error: LsmError | None = None
        self.written: list[str] = []  # all text so far
        self._unsent: list[int] = []
        self._unsent_probs: list[TokenProbs] = []

    @property
    def held(self) -> Held:
        """What its slot shall hold before it answers."""
        return Held(self.prompt, self.spans, self.adapters)

    @property
    def wants_tokens(self) -> bool:
        """False: it was asked only to fill the cache."""
        return self.options.max_tokens != 0 and not self.embeds

    @property
    def embeds(self) -> bool:
        return self.embed is not None

    def read_first(self, decoder_start: int) -> None:
        """The prompt is for the encoder; the decoder's begins, and ends, with this token."""
        self.source, self.n_source = self.prompt, len(self.prompt)
        self.prompt = np.array([decoder_start], np.int32)

    def take(self, token: int, piece: bytes, probs: tuple[TokenProbs, ...] = ()) -> Text | None:
        """Add a token of the answer; the text that is certain now, if there is some."""
        self.sampled = token
        self.predicted_n += 1
        self._unsent.append(token)
        self._unsent_probs += probs
        text = self.text.feed(piece)
        return self._send(text) if text else None

    def last_text(self) -> Text | None:
        """What has not been sent when the answer ends, if there is something.  Of a stop string's tokens nothing more is told."""
        text = self.text.flush()
        if self.text.stopping_word:
            self._unsent_probs.clear()
        return self._send(text) if text or self._unsent else None

    def _send(self, text: str) -> Text:
        tokens, probs = tuple(self._unsent), tuple(self._unsent_probs)
        self._unsent.clear()
        self._unsent_probs.clear()
        self.written.append(text)
        return Text(text, tokens, probs, self.index, self.timings() if self.options.timings_per_token else None)

    def progress(self) -> Progress:
        n_prompt = len(self.prompt)
        return Progress(total=n_prompt, cache=self.cache_n, processed=self.cache_n + self.prompt_n, time_ms=self.prompt_ns / 1e6)

    def share_prompt(self, lead: Request) -> None:
        """The lead's prompt is this one's too, and so is what it took."""
        self.cache_n, self.prompt_n, self.prompt_ns = lead.cache_n, lead.prompt_n, lead.prompt_ns
        self.adapters = lead.adapters

    def stop_type(self, is_eog: bool, has_new_line: bool) -> StopType | None:
        """Whether the token just taken is the last, and why.  The end of generation goes before a stop word, that before the limits.

        The time limit counts from the first token and is looked at where a line ends, so that no line is cut.
        """
        if is_eog:
            return "eos"
        if self.text.stopping_word:
            return "word"
        n_max, ms_max = self.options.max_tokens, self.options.t_max_predict_ms
        out_of_tokens = n_max >= 0 and self.predicted_n >= n_max
        out_of_time = ms_max > 0 and has_new_line and self.predicted_ns > ms_max * 1_000_000
        return "limit" if out_of_tokens or out_of_time else None

    def end(self, stop_type: StopType, truncated: bool, id_slot: int) -> None:
        """Note how it ended; `finish` is set from now on."""
        self.finish = Finish(
            index=self.index,
            stop_type=stop_type,
            stopping_word=self.text.stopping_word if stop_type == "word" else "",
            truncated=truncated,
            id_slot=id_slot,
            timings=self.timings(),
            prompt_tokens=self.n_source or len(self.prompt),
            completion_tokens=self.predicted_n,
            seed=None if self.sampler is None else self.sampler.seed,
        )

    def timings(self) -> Timings:
        return Timings(
            cache_n=self.cache_n,
            prompt_n=self.prompt_n,
            prompt_ms=self.prompt_ns / 1e6,
            predicted_n=self.predicted_n,
            predicted_ms=self.predicted_ns / 1e6,
            draft_n=self.draft_n,
            draft_n_accepted=self.draft_n_accepted,
        )

    def close_sampler(self) -> None:
        if self.sampler is not None:
            self.sampler.close()
            self.sampler = None

    def close(self) -> None:
        """Give back what the request holds of other rooms."""
        self.close_sampler()
        self.machine.close()
