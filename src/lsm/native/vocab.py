"""Text to tokens and back. Needs no device memory: works while the model sleeps, from any thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsm.errors import InvalidRequest, NotSupported
from lsm.native.checks import check, message_buffer
from lsm.native.library import ffi, lib

__all__ = ["Tokens", "Vocab"]

Tokens = NDArray[np.int32]


class Vocab:
    """The vocabulary of a loaded model; valid as long as the model is open."""

    def __init__(self, model: Any) -> None:
        self.handle = lib.llama_model_get_vocab(model)
        self.type: int = lib.llama_vocab_type(self.handle)
        self.n_tokens: int = lib.llama_vocab_n_tokens(self.handle)
        self._pieces: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
        has_text = self.type != lib.LLAMA_VOCAB_TYPE_NONE
        self.bos = _token_or_none(lib.llama_vocab_bos(self.handle))
        self.eos = _token_or_none(lib.llama_vocab_eos(self.handle))
        self.eot = _token_or_none(lib.llama_vocab_eot(self.handle))
        self.sep = _token_or_none(lib.llama_vocab_sep(self.handle))
        self.fim_pre = _token_or_none(lib.llama_vocab_fim_pre(self.handle))
        self.fim_suf = _token_or_none(lib.llama_vocab_fim_suf(self.handle))
        self.fim_mid = _token_or_none(lib.llama_vocab_fim_mid(self.handle))
        self.fim_rep = _token_or_none(lib.llama_vocab_fim_rep(self.handle))
        self.fim_sep = _token_or_none(lib.llama_vocab_fim_sep(self.handle))
        self.add_sep = bool(has_text and lib.llama_vocab_get_add_sep(self.handle))
        self.add_bos = bool(has_text and lib.llama_vocab_get_add_bos(self.handle))
        self.add_eos = bool(has_text and lib.llama_vocab_get_add_eos(self.handle))
        end_tokens = (t for t in range(self.n_tokens) if has_text and lib.llama_vocab_is_eog(self.handle, t))
        self.eog: frozenset[int] = frozenset(end_tokens)
        n_suppressed = ffi.new("int32_t *")
        suppressed = lib.llama_vocab_get_suppress_tokens(self.handle, n_suppressed)
        self.suppressed: tuple[int, ...] = tuple(suppressed[0 : n_suppressed[0]]) if n_suppressed[0] else ()
        self.dry_samplers: dict[Any, Any] = {}  # see `native.sampler`: what is slow to make, and fast to copy

    def is_eog(self, token: int) -> bool:
        """Whether this token ends a generation."""
        return token in self.eog

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> Tokens:
        """Token ids (n,) int32.

        Args:
            add_special: put BOS and EOS where the model wants them.
            parse_special: take `<|...|>` in the text for the token it names; otherwise it is plain text.

        Raises:
            InvalidRequest: the text cannot be tokenized, or the model has no vocabulary.
        """
        data = text.encode("utf-8", "replace")  # lone surrogates have no UTF-8, and llama.cpp takes nothing else
        tokens = np.empty(len(data) // 2 + 8, np.int32)
        n, err = ffi.new("int *"), message_buffer()
        while True:
            out = ffi.from_buffer("int32_t[]", tokens)
            code = lib.lsm_vocab_tokenize(self.handle, data, len(data), add_special, parse_special, out, len(tokens), n, err, len(err))
            check(code, err)
            if n[0] <= len(tokens):
                return tokens[: n[0]].copy()
            tokens = np.empty(n[0], np.int32)

    def detokenize(self, tokens: Sequence[int] | Tokens, *, remove_special: bool = False, unparse_special: bool = True) -> bytes:
        """The text of all tokens together, UTF-8; it may start or end within a character.

        Args:
            remove_special: leave out the BOS and EOS that the tokenizer would add.
            unparse_special: write special tokens as `<|...|>`; otherwise they are left out.

        Raises:
            InvalidRequest: a token is not in the vocabulary.
        """
        ids = np.ascontiguousarray(tokens, np.int32)
        pointer = ffi.from_buffer("int32_t[]", ids)
        n, err = ffi.new("int *"), message_buffer()
        size = 8 * len(ids) + 16
        while True:
            text = ffi.new("char[]", size)
            code = lib.lsm_vocab_detokenize(self.handle, pointer, len(ids), remove_special, unparse_special, text, size, n, err, len(err))
            check(code, err)
            if n[0] <= size:
                return bytes(ffi.buffer(text, n[0]))
            size = n[0]

    def piece(self, token: int, special: bool = True) -> bytes:
        """The bytes of one token, remembered. `special` False: special tokens have none.

        Raises:
            InvalidRequest: no such token.
            NotSupported: the model has no vocabulary.
        """
        known = self._pieces[special]
        piece = known.get(token)
        if piece is None:
            piece = known[token] = self._read_piece(token, special)
        return piece

    def text(self, token: int) -> bytes:
        """The token as the file spells it, which is no text yet.  It must be in the vocabulary."""
        return bytes(ffi.string(lib.llama_vocab_get_text(self.handle, token)))

    def is_control(self, token: int) -> bool:
        """Whether the token is a mark for the model, such as `<|im_end|>`, rather than text."""
        return bool(lib.llama_vocab_get_attr(self.handle, token) & lib.LLAMA_TOKEN_ATTR_CONTROL)

    def _read_piece(self, token: int, special: bool) -> bytes:
        if self.type == lib.LLAMA_VOCAB_TYPE_NONE:
            raise NotSupported("this model has no vocabulary")
        if not 0 <= token < self.n_tokens:
            raise InvalidRequest(f"token {token} is not in the vocabulary (0 to {self.n_tokens - 1})", "tokens")
        size = 32
        while True:
            buffer = ffi.new("char[]", size)
            n = lib.llama_token_to_piece(self.handle, token, buffer, size, 0, special)
            if n >= 0:
                return bytes(ffi.buffer(buffer, n))
            size = -n


def _token_or_none(token: int) -> int | None:
    return token if token != lib.LLAMA_TOKEN_NULL else None
