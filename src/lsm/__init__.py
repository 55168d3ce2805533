"""Several local language models share one GPU: their memory comes and goes, they stay loaded.

    import lsm

    with lsm.open({"smollm2": "smollm2-135m-instruct-q4_1.gguf"}) as models:
        print(models["smollm2"].chat("What is a lock?", max_tokens=64))

Errors are `lsm.errors`, the interface beneath is `lsm.api`, the settings are `lsm.Settings`.
Names are resolved when first used, so that `import lsm` costs nothing and never loads the compiled part.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lsm_embed import Answer, AsyncModel, AsyncModels, AsyncStream, Model, Models, Stream, open, open_async

    from lsm import api, config, errors
    from lsm.api import Options, Sampling, Timings
    from lsm.config import Settings

    __version__: str

_HOMES = {
    "lsm_embed": ("Answer", "AsyncModel", "AsyncModels", "AsyncStream", "Model", "Models", "Stream", "open", "open_async"),
    "lsm.api": ("Options", "Sampling", "Timings"),
    "lsm.config": ("Settings",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("api", "config", "errors")

__all__ = [
    "Answer", "AsyncModel", "AsyncModels", "AsyncStream", "Model", "Models", "Options", "Sampling", "Settings", "Stream", "Timings",
    "api", "config", "errors", "open", "open_async",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"lsm.{name}")
    if name == "__version__":
        return _version()
    if name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'lsm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _version() -> str:
    """Of the installed distribution; a checkout that is only on the path has none."""
    from importlib import metadata  # takes longer than everything else here

    try:
        return metadata.version("lsm-server")
    except metadata.PackageNotFoundError:
        return "unknown"
