"""Language: from a conversation to the text that the model was trained on.  Pure; no clock but the one given, no I/O."""

from lsm.chat.messages import normalized
from lsm.chat.template import ChatTemplate

__all__ = ["ChatTemplate", "normalized"]
