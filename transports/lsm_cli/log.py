"""Where the log goes and how much of it: llama-server's verbosity 0 to 5 in terms of `logging`."""

from __future__ import annotations

import logging

from lsm.config import Settings
from lsm.errors import ConfigError

SILENT = logging.CRITICAL + 10
LEVELS = (SILENT, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, logging.DEBUG)
LLAMA_LEVELS = (SILENT, logging.ERROR, logging.WARNING, logging.WARNING, logging.INFO, logging.DEBUG)
LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def set_up_log(settings: Settings) -> None:
    """Once, before anything is loaded.  Raises ConfigError if the file cannot be written."""
    handler = _file_handler(settings) if settings.log_file else logging.StreamHandler()
    level_of_others = max(LEVELS[settings.verbosity], logging.INFO)  # of other libraries, what they hold for information is enough
    logging.basicConfig(format=LINE, level=level_of_others, handlers=[handler], force=True)
    logging.getLogger("lsm").setLevel(LEVELS[settings.verbosity])
    logging.getLogger("lsm.llama").setLevel(LLAMA_LEVELS[settings.verbosity])
    for warning in settings.warnings:
        logging.getLogger("lsm.config").warning(warning)


def _file_handler(settings: Settings) -> logging.Handler:
    assert settings.log_file is not None
    try:
        return logging.FileHandler(settings.log_file)
    except OSError as error:
        raise ConfigError(f"--log-file: cannot write {settings.log_file}: {error.strerror}") from None
