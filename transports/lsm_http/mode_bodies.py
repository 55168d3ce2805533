"""Request bodies of routes that do something else than go on with a text."""

from __future__ import annotations

from typing import Any

import msgspec

from lsm_http.bodies import Generation


class Embeddings(msgspec.Struct):
    """`POST /v1/embeddings`, `/embeddings` and `/embedding`."""

    model: str | None = None
    input: Any = None
    content: Any = None
    encoding_format: str | None = None
    dimensions: int | None = None
    embd_normalize: int | None = None


class Rerank(msgspec.Struct):
    """`POST /v1/rerank` and its other names: `documents` as Jina calls them, or `texts` as TEI does."""

    model: str | None = None
    query: str | None = None
    documents: list[str] | None = None
    texts: list[str] | None = None
    top_n: int | None = None
    return_text: bool | None = None


class ExtraFile(msgspec.Struct):
    text: str
    filename: str | None = None


class Infill(Generation):
    """`POST /infill`."""

    input_prefix: str | None = None
    input_suffix: str | None = None
    input_extra: list[ExtraFile] | None = None
    prompt: str | None = None
