"""Speculative decoding: tokens are guessed, and several of them verified in one batch.

drafter      what every source of guesses is asked
ngram_*      guesses from what was there before; pure
draft_model  guesses of a smaller model, over a port; `draft_context` is that port over a native context
synthetic    guesses that count as right by the throw of a die, for benchmarks (S19); pure
speculation  asks the drafters for each slot, and keeps what a slot needs to take guesses back
"""
