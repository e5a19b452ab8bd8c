"""Answer to a question to a run, in one small type, and the merge of several findings into it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fedassay.support.errors import NotRunError, is_of_the_machine

Question = Literal["noise", "sensitivity", "rest", "worst_case"]
"""`noise`: was it added. `sensitivity`: is it what was declared. `rest`: does everything else follow from the
releases alone. `worst_case`: is it known how far any record can move what is sent."""

Status = Literal["passed", "failed", "not_asked", "crashed"]

QUESTIONS: dict[Question, str] = {
    "noise": "whether the noise was added",
    "sensitivity": "whether the sensitivity is what was declared",
    "rest": "whether everything else follows from the releases",
    "worst_case": "how far a record can move what is sent",
}

_SHOWN = 3


@dataclass(frozen=True)
class Answer:
    """Answer to one question.

    Attributes:
        question: The question.
        status: `failed` disproves the declaration; `not_asked` and `crashed` leave it open.
        words: The reason, or the trials.
        field: The field that it is about; empty: all of them.
        p: Smallest p-value, corrected for the number of blocks; None where nothing was left to chance.
    """

    question: Question
    status: Status
    words: str
    field: str = ""
    p: float | None = None


@dataclass(frozen=True)
class Fault:
    """Something that contradicts, or keeps from asking.

    Attributes:
        field: The field that it is about.
        words: Description of the fault.
        status: See `Answer`.
    """

    field: str
    words: str
    status: Status = "failed"


class Attempt:
    """A block that may fail, in code that is itself under test: `with attempt: ...`, then see `failure`.

    Where the machine has no memory or no disk left, nothing was found out about that code: this is raised.

    Attributes:
        failure: The failure, in words; empty: none.
    """

    def __init__(self) -> None:
        self.failure = ""

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, NotRunError) or is_of_the_machine(error):
            return False
        self.failure = f"{type(error).__name__}: {error}"
        return True


def answered(question: Question, faults: Sequence[Fault], tried: str, p: float | None = None) -> Answer:
    """The answer that faults make: what disproves goes before what could not be asked."""
    for status in ("failed", "crashed", "not_asked"):
        own = [fault for fault in faults if fault.status == status]
        if own:
            words = listed(fault.words for fault in own)
            return Answer(question, own[0].status, words, own[0].field, p)
    return Answer(question, "passed", tried, p=p)


def listed(words: Iterable[str]) -> str:
    """The first few of several clauses, each once, and how many more there are."""
    kept = list(dict.fromkeys(words))
    more = len(kept) - _SHOWN
    return "; ".join(kept[:_SHOWN]) + (f" (and {more} more)" if more > 0 else "")
