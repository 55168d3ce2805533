"""Requests that follow each other, to two servers with the same flags and the same small random model.

The cases of one setting find in the cache what those before them left there; both servers get the same ones, so any part of them can be
run alone.  A random model knows no likely token, so every step of a sampler shows.  Nearly each letter is a token of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.differential.cases import ALONE, CHATS, COMPLETIONS, GREEDILY, GREEDY, HOT, REPEATS, TOGETHER, Case

TOKENS: Mapping[str, Any] = {"return_tokens": True, "n_predict": 16}
WORDS = "hello world the end of it is in the world and you"
GRAMMARS: Mapping[str, str] = {
    "classes": "root ::= [a-f]{4} [^a-f]{4}",
    "choices": 'root ::= ("one" | "two" | "three")+ "."',
    "optional": 'root ::= "a"? "b"* "c"{2,5} [0-9]',
    "rules": 'root ::= list\nlist ::= "[" item ("," item)* "]"\nitem ::= [0-9]{1,3} | list',
    "letters beyond ASCII": 'root ::= [äöü€]{3} "ß"',
    "exact": 'root ::= "hello world" "\\n"',
}
STOPS: Mapping[str, list[str]] = {
    "letter": ["a"], "space": [" "], "word": ["hello", " the"], "one begins the other": ["ing", "in"], "line": ["\n"],
    "never": ["zyxwvutsr"], "bytes of several": ["é"], "empty list": [],
}  # fmt: skip
TEXTS: Mapping[str, Any] = {
    "words": WORDS, "nothing": "", "spaces": "  a   b ", "lines": "a\n\nb\r\n\tc", "emoji": "😀 naïve café",
    "special": "<s>hello</s> <unk>", "tokens": [1, 263, 264], "mixed": ["hello ", 270, " world"],
}  # fmt: skip
MESSAGES: Mapping[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": WORDS}],
    "three": [
        {"role": "system", "content": "it is"}, {"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"},
        {"role": "user", "content": "and"},
    ],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """`model`: a name of `tests.tiny_models`, or a real one.  `flags`: {save} is a folder of the server's own, {lora11} an adapter."""

    name: str
    model: str
    flags: tuple[str, ...]
    cases: tuple[Case, ...]


def ask(name: str, prompt: Any, options: Mapping[str, Any] = GREEDY, compare: str = "answer") -> Case:
    return Case(name, {"prompt": prompt, **TOKENS, **options}, compare=compare)


def _samplers() -> Iterator[Case]:
    for name, options in ALONE.items():
        for seed in (1, 2):
            yield ask(f"tiny alone: {name}, {seed}", REPEATS, HOT | options | {"seed": seed, "cache_prompt": False})
    for seed in range(4):
        yield ask(f"tiny together: {seed}", REPEATS, HOT | TOGETHER | {"seed": seed, "cache_prompt": False})
    for name in ("repeat_penalty", "frequency and presence", "dry", "dry breakers", "ignore_eos", "temperature below 0"):
        yield ask(f"tiny greedy: {name}", REPEATS, GREEDY | GREEDILY[name])


def _shapes() -> Iterator[Case]:
    for name, grammar in GRAMMARS.items():
        yield ask(f"grammar: {name}, greedy", WORDS, GREEDY | {"grammar": grammar})
        yield ask(f"grammar: {name}, seeded", WORDS, HOT | {"grammar": grammar})
    for name, stop in STOPS.items():
        yield ask(f"stop: {name}", WORDS, GREEDY | {"stop": stop, "n_predict": 48})
    for name, text in TEXTS.items():
        yield ask(f"prompt: {name}", text)
    for n in (1, 2, 100):
        yield ask(f"length: {n}", WORDS, GREEDY | {"n_predict": n})
    yield ask("length: until the context is full", WORDS, GREEDY | {"n_predict": -1, "ignore_eos": True})


def _texts() -> Iterator[Case]:
    for name, text in TEXTS.items():
        for flags in ({}, {"add_special": True}, {"parse_special": False}, {"with_pieces": True}):
            yield Case(f"tokenize: {name} {flags}", {"content": text, **flags}, "/tokenize", "whole")
    for tokens in ([], [1, 2, 0], [263, 264, 271], [198, 131], [240 + 3, 159 + 3, 152 + 3, 128 + 3]):
        yield Case(f"detokenize: {tokens}", {"tokens": tokens}, "/detokenize", "whole")
    for name, messages in MESSAGES.items():
        yield Case(f"template: {name}", {"messages": messages}, "/apply-template", "whole")


def _long() -> Iterator[Case]:
    for n in (31, 32, 33, 63, 64, 65, 500):
        yield ask(f"long: {n}", (WORDS * 12)[:n], GREEDY | {"cache_prompt": False})


def _cached(prefix: str) -> Iterator[Case]:
    long = "it is the end of the world and you hello " * 4
    yield ask(f"{prefix} cache: first", long)
    yield ask(f"{prefix} cache: again", long)
    yield ask(f"{prefix} cache: longer", long + " in the end")
    yield ask(f"{prefix} cache: another end", long[:-20] + "xyz")
    yield ask(f"{prefix} cache: shorter", long[:50])
    yield ask(f"{prefix} cache: something else", WORDS)
    yield ask(f"{prefix} cache: back", long)
    yield ask(f"{prefix} cache: without", long, GREEDY | {"cache_prompt": False})
    yield ask(f"{prefix} cache: seeded", long + "a", HOT)


def _reused() -> Iterator[Case]:
    start, middle, end = "hello world, ", "abcdefghijklmnopqrstuvwxyz ", "0123456789 the end of the world "
    yield ask("reuse: all", start + middle + end)
    yield ask("reuse: without the middle", start + end + "?")
    yield ask("reuse: another middle", start + "XYZ" + end + "!")
    yield ask("reuse: not asked for", start + middle + "#" + end, GREEDY | {"n_cache_reuse": 0})
    yield ask("reuse: long chunks only", start + end, GREEDY | {"n_cache_reuse": 100})
    yield ask("reuse: seeded", start + end[5:] + "-", HOT)


def _shifted() -> Iterator[Case]:
    long: Mapping[str, Any] = {"n_predict": 200, "ignore_eos": True}
    yield ask("shift: nothing kept", WORDS, GREEDY | long)
    yield ask("shift: again", WORDS, GREEDY | long)
    yield ask("shift: four kept", WORDS, GREEDY | long | {"n_keep": 4})
    yield ask("shift: the prompt kept", WORDS, GREEDY | long | {"n_keep": -1})
    yield ask("shift: ten dropped", WORDS, GREEDY | long | {"n_discard": 10})
    yield ask("shift: penalties", WORDS, GREEDY | long | {"repeat_penalty": 1.3, "n_keep": 8})
    yield ask("shift: seeded", WORDS, HOT | long | {"n_keep": 8})


def _choices() -> Iterator[Case]:
    chat, text = {"messages": MESSAGES["one"], "max_tokens": 12}, {"prompt": WORDS, "max_tokens": 12}
    for n in (2, 3, 4):
        yield ask(f"choices: {n}", WORDS, HOT | {"n_cmpl": n})
    yield ask("choices: greedy", WORDS, GREEDY | {"n_cmpl": 2})
    yield Case("choices: chat", HOT | chat | {"n": 3}, CHATS)
    yield Case("choices: completion", HOT | text | {"n": 2}, COMPLETIONS)


def _slots() -> Iterator[Case]:
    def act(name: str, slot: int, action: str) -> Case:
        return Case(f"slots: {name}", {"filename": "file.bin"}, f"/slots/{slot}?action={action}", "slot")

    yield ask("slots: filled", WORDS, GREEDY | {"id_slot": 0})
    yield act("saved", 0, "save")
    yield act("restored elsewhere", 1, "restore")
    yield ask("slots: goes on there", WORDS + " in", GREEDY | {"id_slot": 1})
    yield act("erased", 1, "erase")
    yield ask("slots: from the beginning", WORDS + " in", GREEDY | {"id_slot": 1})
    yield act("restored", 0, "restore")
    yield ask("slots: goes on", WORDS, GREEDY | {"id_slot": 0})
    yield ask("slots: the most alike", WORDS + " in the")


def _adapters() -> Iterator[Case]:
    yield ask("adapters: as they start", WORDS)
    for first, second in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, -0.5), (1.0, 1.0)):
        scales = [{"id": 0, "scale": first}, {"id": 1, "scale": second}]
        yield Case(f"adapters: set to {first} {second}", scales, "/lora-adapters", "whole")
        yield ask(f"adapters: {first} {second}", WORDS, GREEDY | {"cache_prompt": False})
    for name, lora in (("none", []), ("one", [{"id": 0, "scale": 0.7}]), ("both", [{"id": 1, "scale": 0.3}, {"id": 0, "scale": -1}])):
        yield ask(f"adapters: {name} for a request", WORDS, GREEDY | {"lora": lora, "cache_prompt": False})


SETTINGS = (
    Setting("samplers", "llama", (), tuple(_samplers())),
    Setting("shapes", "llama", ("--ctx-size", "256"), (*_shapes(), *_texts(), *_cached("llama"))),
    Setting("batches", "llama", ("--batch-size", "64", "--ubatch-size", "32"), tuple(_long())),
    Setting("reuse", "llama", ("--cache-reuse", "8"), tuple(_reused())),
    Setting("shift", "llama", ("--context-shift", "--ctx-size", "128"), tuple(_shifted())),
    Setting("choices", "llama", ("--parallel", "4", "--kv-unified"), tuple(_choices())),
    Setting("slots", "llama", ("--parallel", "2", "--kv-unified", "--slot-save-path", "{save}"), tuple(_slots())),
    Setting("adapters", "llama", ("--lora", "{lora11},{lora12}"), tuple(_adapters())),
    Setting("windows", "gemma3", (), tuple(_cached("gemma3"))),
    Setting("recurrent", "mamba", (), tuple(_cached("mamba"))),
    Setting("hybrid", "jamba", (), tuple(_cached("jamba"))),
)
