"""Which release this is."""

from importlib import metadata


def version() -> str:
    try:
        return metadata.version("lsm-server")
    except metadata.PackageNotFoundError:
        return "not installed"
