"""Settings: each one stands once, in `settings.py` or `generation.py`, with its flags, environment names, default, reader and help."""

from lsm.config.parse import HELP_FLAGS, LIST_DEVICES, VERSION_FLAGS, parse_arguments
from lsm.config.reference import help_text, markdown
from lsm.config.setting import Setting
from lsm.config.settings import SETTINGS, ModelSource, Settings

__all__ = [
    "HELP_FLAGS",
    "LIST_DEVICES",
    "SETTINGS",
    "VERSION_FLAGS",
    "ModelSource",
    "Setting",
    "Settings",
    "help_text",
    "markdown",
    "parse_arguments",
]
