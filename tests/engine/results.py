"""What the outputs of an engine mean for one request."""

from __future__ import annotations

from collections.abc import Sequence

from lsm.engine.outputs import Cancelled, Ended, Failed, Output, Piece
from lsm.errors import LsmError
from lsm.values import Finish


def texts(outputs: Sequence[Output], id: str, index: int = 0) -> str:
    return "".join(output.text.text for output in _pieces(outputs, id, index))


def tokens(outputs: Sequence[Output], id: str, index: int = 0) -> list[int]:
    return [token for output in _pieces(outputs, id, index) for token in output.text.tokens]


def _pieces(outputs: Sequence[Output], id: str, index: int) -> list[Piece]:
    return [output for output in outputs if isinstance(output, Piece) and (output.id, output.text.index) == (id, index)]


def end(outputs: Sequence[Output], id: str, index: int = 0) -> Ended | Failed | Cancelled:
    """The only end of this choice of this id, and its last output."""
    own = [output for output in outputs if output.id == id and _index(output) in (index, None)]
    ends = [output for output in own if isinstance(output, Ended | Failed | Cancelled)]
    assert len(ends) == 1 and own[-1] is ends[0], own
    return ends[0]


def _index(output: Output) -> int | None:
    match output:
        case Piece():
            return output.text.index
        case Ended():
            return output.finish.index if isinstance(output.finish, Finish) else 0
    return None


def result(outputs: Sequence[Output], id: str, index: int = 0) -> tuple[str, Finish]:
    ended = end(outputs, id, index)
    assert isinstance(ended, Ended) and isinstance(ended.finish, Finish), ended
    return texts(outputs, id, index), ended.finish


def error(outputs: Sequence[Output], id: str) -> LsmError:
    failed = end(outputs, id)
    assert isinstance(failed, Failed), failed
    return failed.error
