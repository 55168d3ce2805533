"""The HTTP door: OpenAI's and llama-server's routes over `lsm.api`."""

from lsm_http.serve import serve

__all__ = ["serve"]
