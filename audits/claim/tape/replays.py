"""Replays of a run, each in a process that never ran the method, and how far they go.

A replay goes to the end of the method, so that all that comes back is compared. Where only messages are asked for,
it may end with the last one, if the spool saw every message of a client. Where networks are trained privately, a
training gives out its first weights, and the server takes most of what is left of the time: there most replays are
of that kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fedassay.audits.claim.tape.compared import of_clients, unlike_messages
from fedassay.contracts.audit import AuditContext, Look, Replayed
from fedassay.data.records import Records
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.privacy.tape import ExternalMechanism, Key, Tape
from fedassay.support.hashing import digest_arrays


@dataclass
class Replays:
    """The replays of one run.

    Attributes:
        context: Of the run, with its tape.
    """

    context: AuditContext

    def __call__(
        self,
        clients: Sequence[Records],
        answers: Tape | None = None,
        other: str = "",
        *,
        look: Look | None = None,
        whole: bool = False,
    ) -> Replayed:
        """One replay.

        Args:
            clients: Records of every client, in their order.
            answers: Outputs that are kept; None: those of the run.
            other: See `MethodInput.replayed`.
            look: The query on the tape, run where it was made.
            whole: Whether the run must go to its end.

        Raises:
            NotRunError: There is no method that could be run again.
        """
        asked = answers is not None or other or look is not None or whole
        if not asked and all(each is own for each, own in zip(clients, self.context.data.clients, strict=True)):
            return self.same
        brief = not whole and self.brief
        return self.context.replay(clients, answers or self.context.tape, other, look=look, brief=brief)

    @cached_property
    def same(self) -> Replayed:
        """A whole replay on the same records; `inputs_of` is asked of it."""
        return self(self.context.data.clients, look=inputs_of, whole=True)

    @property
    def trained(self) -> bool:
        """Whether networks were trained privately, so that replays are dear."""
        return bool(self.context.tape.trainings)

    @cached_property
    def brief(self) -> bool:
        """See `may_be_brief`."""
        return may_be_brief(self.context)


def may_be_brief(context: AuditContext) -> bool:
    """Whether a replay that ends with the last message shows all that clients send.

    Args:
        context: Of the run, with its tape; the answer is shared by all audits of a cell.
    """
    if not context.tape.messages:
        return False

    def ends() -> bool:
        found = context.replay(context.data.clients, context.tape, brief=True)
        first = of_clients(context.outcome.transcript.messages)
        return not unlike_messages(first, of_clients(found.messages), frozenset())

    return context.data.once(f"replays of {context.io.prefix[0]} may be brief", ends)


def inputs_of(tape: Tape) -> dict[Key, str]:
    """Digests of the inputs of private trainings and of others' mechanisms, which no tape sends back, by key."""
    found = {
        key: digest_arrays({"values": entry.values})
        for key, entry in tape.draws.items()
        if isinstance(entry, ExternalMechanism) and entry.values is not None
    }
    for key, entry in trainings(tape).items():
        if entry.replay is not None:
            given = entry.replay.training
            arrays = {"inputs": given.inputs, "labels": given.labels}
            found[key] = digest_arrays({name: each.detach().cpu().numpy() for name, each in arrays.items()})
    return found
