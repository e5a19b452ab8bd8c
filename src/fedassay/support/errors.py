"""The errors a user can cause, each ending in one message and exit code 2.

Everything else that goes wrong inside a cell is recorded there and ends in exit code 1.
"""

from __future__ import annotations


class FedassayError(Exception):
    """Base of the errors that are shown as one message, without a traceback."""


class PlanError(FedassayError):
    """The plan, the command line or a policy is wrong.

    The message says where (the key), what was given, and what is allowed.
    """


class DataError(FedassayError):
    """A file given by the user cannot be used: where, what was found, what is allowed."""


class NotRunError(FedassayError):
    """A part of a cell cannot be run on what it was given; the message becomes the `not_run` reason."""
