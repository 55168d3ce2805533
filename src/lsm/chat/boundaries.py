"""Where messages begin in a prompt: the text that a chat template puts before each message of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lsm.errors import InvalidRequest

Render = Callable[[Sequence[Mapping[str, str]]], str]

USER, ANSWER, USER_AGAIN = "QuestionOneProbe", "AnswerOneProbe", "QuestionTwoProbe"


def user_marker(render: Render) -> str:
    """What stands between the end of an answer and the user's next text, without the white space around it; empty: nobody can tell.

    `render` makes a prompt of messages, without the beginning of the next answer.
    """
    conversation = [{"role": "user", "content": USER}, {"role": "assistant", "content": ANSWER}]
    try:
        once = render(conversation)
        twice = render([*conversation, {"role": "user", "content": USER_AGAIN}])
    except InvalidRequest:
        return ""
    end_of_answer = once.partition(ANSWER)[2]
    between = twice.partition(ANSWER)[2].partition(USER_AGAIN)
    return between[0].removeprefix(end_of_answer).strip() if between[1] else ""
