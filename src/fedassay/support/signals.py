"""Signals that ask a process to end: it ends in order, with a message, as on Ctrl-C.

SIGTERM comes from batch systems, containers and `timeout`, SIGHUP from a terminal that is closed. By default both
end a process where it stands; temporary folders and worker processes would stay behind.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_ASKED = (signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal asked the process to end. Like KeyboardInterrupt, no handler of errors catches it.

    Attributes:
        number: Number of the signal.
        name: Such as SIGTERM.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.name = signal.Signals(number).name


def stop_in_order() -> None:
    """Let SIGTERM and SIGHUP raise `Stopped` in the main thread; an ignored signal (`nohup`) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _ASKED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def leave_to_parent() -> None:
    """In a worker: ignore signals that reach every process of a terminal; the parent process ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _stop(number: int, _frame: FrameType | None) -> None:
    # Once: tidying up is not to be interrupted by the next.
    for each in _ASKED:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)
