"""Everything that lsm raises on purpose.

    LsmError
    ├── InvalidRequest              400 invalid_request_error      the caller sent something wrong; `field` names it
    │   └── ContextExceeded         400 exceed_context_size_error  the prompt does not fit the slot
    ├── NotFound                    404 not_found_error            no such model, no such route
    ├── NotSupported                501 not_supported_error        this model or build cannot do it
    ├── Unavailable                 503 unavailable_error          try again in `retry_after_s`
    │   ├── ModelLoading                                           the first byte of the model is not there yet
    │   ├── ModelFailed                                            the model could not be loaded; why is in the message
    │   └── WakeFailed                                             device memory could not be had
    ├── ServerError                 500 server_error               our fault; the next request is served
    │   └── DecodeFailed                                           llama_decode refused the batch
    ├── ModelFileError              a model file is missing, broken or not for this build
    │   └── SourceChanged           the file is not the one that was loaded
    ├── LoadCancelled               the caller stopped a load; nothing of the model is left
    ├── DeviceMemoryError           an allocation on the device failed; nothing changed, try again
    │   └── SpillError              released memory cannot be kept in the spill folder, or read back from it
    ├── OverBudget                  a model needs more device memory than the budget is: no wait can help
    ├── ArenaError                  the arena directory cannot be used
    │   └── ArenaGone               it was deleted while in use
    ├── ConfigError                 a flag, an environment variable or a file of settings is wrong
    └── BuildError                  the compiled part is missing or cannot run here

The first six carry the HTTP status and the `error.type` of the requirements' part B.0; the doors only copy them.
Errors of the second half happen outside a request; where one ends a request it is re-labelled once, in `runtime`.
"""

from __future__ import annotations


class LsmError(Exception):
    """Base of all. `message` is a sentence for people: what is wrong, where, and what to do."""

    status = 500
    type = "server_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidRequest(LsmError):
    """400. `field` is the member of the request that is wrong, if it is one."""

    status = 400
    type = "invalid_request_error"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(f"Field '{field}': {message}" if field else message)
        self.field = field


class ContextExceeded(InvalidRequest):
    """400. The prompt leaves no position free for a token of the answer (N >= slot context)."""

    type = "exceed_context_size_error"

    def __init__(self, n_prompt_tokens: int, n_ctx: int) -> None:
        super().__init__(
            f"request ({n_prompt_tokens} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
        )
        self.n_prompt_tokens = n_prompt_tokens
        self.n_ctx = n_ctx


class NotFound(LsmError):
    status = 404
    type = "not_found_error"


class NotSupported(LsmError):
    status = 501
    type = "not_supported_error"


class Unavailable(LsmError):
    """503. Nothing was lost; the same request may be sent again after `retry_after_s` seconds."""

    status = 503
    type = "unavailable_error"

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelLoading(Unavailable):
    def __init__(self, message: str = "Loading model", retry_after_s: int = 1) -> None:
        super().__init__(message, retry_after_s)


class ModelFailed(Unavailable):
    def __init__(self, message: str, retry_after_s: int = 10) -> None:
        super().__init__(message, retry_after_s)


class WakeFailed(Unavailable):
    def __init__(self, message: str, retry_after_s: int = 2) -> None:
        super().__init__(message, retry_after_s)


class ServerError(LsmError):
    pass


class DecodeFailed(ServerError):
    pass


class ModelFileError(LsmError):
    pass


class SourceChanged(ModelFileError):
    pass


class LoadCancelled(LsmError):
    pass


class DeviceMemoryError(LsmError):
    pass


class SpillError(DeviceMemoryError):
    pass


class OverBudget(LsmError):
    """A model needs more device memory than the budget is, even alone."""


class ArenaError(LsmError):
    pass


class ArenaGone(ArenaError):
    pass


class ConfigError(LsmError):
    pass


class BuildError(LsmError):
    pass
