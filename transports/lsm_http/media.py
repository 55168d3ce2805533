"""Images and sound beside a prompt: `{"prompt_string": ..., "multimodal_data": [base64, ...]}`.

In a conversation they are parts of messages, which the host takes apart for all doors.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from lsm.api import MediaPrompt
from lsm.errors import InvalidRequest


def media_prompt(text: str, data: Any, field: str) -> MediaPrompt:
    """Raises `InvalidRequest`: not a list of base64 texts.  Whether markers and media agree is seen where the text is tokenized."""
    if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        raise InvalidRequest("must be a list of texts in base64", f"{field}.multimodal_data")
    return MediaPrompt(text, tuple(_decoded(item, f"{field}.multimodal_data[{i}]") for i, item in enumerate(data)))


def _decoded(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("Invalid base64 value", where) from None
