"""The method's own release, without privacy, of control records that it is known to give away.

Clients hold one control record a label, and others two: from one record a sum is the record, and what a mixture or
a second moment gives away shows where there are two. Labels are dealt at random, so that they cannot be predicted
from the images: a model that gets them right has memorized its records. The method is run in the form in which it
gives away most (`fedassay.contracts.method.HasLeakiestForm`), and the view is that of the plan's threat model. The
audited attack, with shadow releases of the same kind, separates these records from as many other control records
of the same labels.

Where only sums over clients are seen, the records of one client are spread over all clients by label; where
networks are trained, one client holds them all. The method is run once for each such client that is needed. Cells
of one seed that differ in epsilon alone share the answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.membership.controls import CONTROL_SHADOWS, label_by_image
from fedassay.audits.simulation import control_seeds
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.membership import MembershipGame, visible
from fedassay.data.records import Records, joined
from fedassay.exchange.transcript import kinds_in
from fedassay.exchange.view import View
from fedassay.support.errors import FedassayError, NotRunError, Why
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools, Ints

SIZES = (1, 2)
"""Records a label of the clients that are exposed."""


def sizes_for(source: str) -> tuple[int, ...]:
    """Client sizes that a source must tell: a model need not hold more than one record a label by heart."""
    return SIZES if source == "messages" else SIZES[:1]


WHOLE = ""
"""The messages as they are seen."""
_MOMENTS, _REST = "second moments alone", "all but second moments"
_SUMS = ("class_sums", "class_means", "mixture_means")
_WORDS = {1: "one control record a label", 2: "two control records a label"}
_MEMBERS = 20
"""Members of clients of each size that are asked about; half as many where control records are scarce."""
_MORE = 80
"""Further members of each size, at most, where the first ones do not decide whether the attack detects them."""
LOOKS = 2
"""Number of judgements of a control, at an equal share of its level each: of the first members, and of all."""
_LABELS = 20
"""Labels at most: more clients cost less than more labels."""


@dataclass(frozen=True, eq=False)
class NonPrivateRuns:
    """Answers of the attack about a release that gives its records away.

    Attributes:
        scores: By part (`_parts`), and source and test, each over all candidates, NaN where one was not scored.
        members: Whether each candidate is a member, shape (n,).
        blocks: The exchangeable group (run, client and label) of each, shape (n,).
        sizes: Records a label of the client that each is asked of, shape (n,).
        senders: The client that each is asked of, shape (n,).
    """

    scores: dict[tuple[str, str], NDArray[np.floating]]
    members: Bools
    blocks: NDArray[np.str_]
    sizes: Ints
    senders: NDArray[np.str_]

    @property
    def labels(self) -> NDArray[np.str_]:
        """The label that each is asked under, shape (n,)."""
        return np.array([block.rsplit("/", 1)[-1] for block in self.blocks], np.str_)

    def asked(self, source: str) -> list[tuple[int, str]]:
        """Sizes of clients, and parts of their messages, that a source must tell."""
        parts = sorted({part for part, _ in self.scores}) if source == "messages" else [WHOLE]
        return [(size, part) for size in sizes_for(source) for part in parts]

    def words(self, size: int, part: str) -> str:
        """Return a description of the release to clients of a size."""
        records = int((self.members & (self.sizes == size)).sum())
        seen = f", seen in {part}" if part else ""
        return f"the method's own run without privacy on clients of {_WORDS[size]}, {records} in all{seen}"


@dataclass(frozen=True, eq=False)
class _Dealt:
    """A client of control records, and the control records that it does not hold."""

    held: Records
    others: Records
    size: int


def nonprivate_runs(context: AttackedContext, *, more: bool = False) -> NonPrivateRuns:
    """The attack's answers about what the method makes of control records.

    Args:
        context: The cell and its attack.
        more: Of further control records as well, as many as there are, up to `_MORE` members of each size.

    Raises:
        NotRunError: There are too few control records, or the method cannot be run on them.
    """
    if more:
        return _pooled(nonprivate_runs(context), _kept(context, more=True))
    return _kept(context, more=False)


def _kept(context: AttackedContext, *, more: bool) -> NonPrivateRuns:
    def make() -> NonPrivateRuns | Why:
        try:
            return _nonprivate_runs(context, more=more)
        except NotRunError as error:
            return error.why
        except FedassayError as error:
            return Why(str(error))

    name = "membership/exposed/more" if more else "membership/exposed"
    kept = context.data.once(f"{name}/{context.attack_key}/{context.release_key}", make)
    if isinstance(kept, Why):
        raise NotRunError.of(kept)
    return kept


def _pooled(first: NonPrivateRuns, further: NonPrivateRuns) -> NonPrivateRuns:
    """Both; a source that one of them does not show has no answers about all candidates."""
    return NonPrivateRuns(
        {
            key: np.concatenate([values, further.scores[key]])
            for key, values in first.scores.items()
            if key in further.scores
        },
        *(
            np.concatenate([getattr(each, name) for each in (first, further)])
            for name in ("members", "blocks", "sizes", "senders")
        ),
    )


def _nonprivate_runs(context: AttackedContext, *, more: bool) -> NonPrivateRuns:
    each, messages = _each_is_seen(context), _speaks_in_messages(context.view)
    places = len(context.data.clients) if each else 1
    sizes_asked = sizes_for("messages" if messages else "model")
    dealt = _deal(context, sizes_asked, more=more)
    alike = [[each for each in dealt if each.size == size] for size in sizes_asked]
    # Sizes are not mixed: what the server trains on the sums of all clients can hold a few records by heart.
    runs = [part[start : start + places] for part in alike for start in range(0, len(part), places)]
    scores: dict[tuple[str, str], list[NDArray[np.floating]]] = {}
    members, blocks, sizes, senders = [], [], [], []
    for number, run in enumerate(runs):
        owners = _placed(context, _spread(run[0], len(context.data.clients)) if messages and not each else run)
        run_name: str | int = f"more/{number}" if more else number
        results, questions = _run(context, owners, run_name)
        for name, asked in questions.items():
            members.append(asked.among(owners[name].held))
            blocks += [f"{run_name}/{name}/{label}" for label in asked.labels]
            sizes += [owners[name].size] * len(asked)
            senders += [name] * len(asked)
        for part, result in results.items():
            for key, values in result.scores.items():
                scores.setdefault((part, key), []).append(values)
    # A source that one of the runs does not show has no answers about all candidates.
    whole = {key: np.concatenate(parts) for key, parts in scores.items() if len(parts) == len(runs)}
    return NonPrivateRuns(
        whole,
        np.concatenate(members),
        np.array(blocks, np.str_),
        np.array(sizes, np.int64),
        np.array(senders, np.str_),
    )


def _spread(dealt: _Dealt, clients: int) -> list[_Dealt]:
    """The records dealt to so many clients by their label."""
    labels = np.unique(dealt.held.labels)

    def share(records: Records, place: int) -> Records:
        return records.take(np.flatnonzero(np.isin(records.labels, labels[place::clients])))

    return [
        _Dealt(share(dealt.held, place), share(dealt.others, place), dealt.size)
        for place in range(min(clients, len(labels)))
    ]


def _placed(context: AttackedContext, run: Sequence[_Dealt]) -> dict[str, _Dealt]:
    """Assign dealt records to clients by name, spread evenly from the first client to the last."""
    places = np.linspace(0, len(context.data.clients) - 1, len(run)).round().astype(int)
    return {context.data.clients[place].name: dealt for place, dealt in zip(places, run, strict=True)}


def _run(
    context: AttackedContext, owners: Mapping[str, _Dealt], name: str | int
) -> tuple[dict[str, AttackResult], dict[str, Records]]:
    """One run of the method in which some clients hold control records, and what the attack makes of it."""
    seeds = control_seeds(context, "membership", "exposed", name)
    nothing = context.data.control.take(np.zeros(0, np.int64))
    clients = []
    questions: dict[str, Records] = {}
    for place, client in enumerate(context.data.clients):
        own = owners.get(client.name)
        clients.append(
            nothing.take(np.zeros(0, np.int64), client.name) if own is None else _named(own, client.name)
        )
        if own is not None:
            both = joined(client.name, [own.held, own.others])
            questions[client.name] = both.take(seeds.numpy("order", place).permutation(len(both)))

    def simulate(records: Sequence[Records], streams: Seeds) -> View:
        return visible(context.method.run_nonprivate(records, streams), context.view.threat)

    people = context.game.population
    game = MembershipGame(
        questions,
        {client.name: np.bincount(client.labels, minlength=context.data.classes) for client in clients},
        None if people is None else label_by_image(people, context.data.classes),
        simulate,
        seeds.child("shadows"),
        most=CONTROL_SHADOWS,
    )
    with context.io.progress.step("control: the method without privacy"):
        view = simulate(clients, seeds.child("run"))
    results = {WHOLE: context.attack(view, game)}
    for part in _parts(view):
        seen = {key: replace(shadow, view=_part(shadow.view, part)) for key, shadow in game.kept.items()}

        def simulate_part(records: Sequence[Records], streams: Seeds, part: str = part) -> View:
            return _part(simulate(records, streams), part)

        results[part] = context.attack(_part(view, part), replace(game, simulate=simulate_part, kept=seen))
    return results, questions


def _speaks_in_messages(view: View) -> bool:
    """Whether clients send what says something of single records; networks are asked about one size alone."""
    kinds = kinds_in(view.from_clients())
    return bool(kinds & {"features", "second_moment", *_SUMS})


def _parts(view: View) -> tuple[str, ...]:
    """Parts of messages that each give records away: evidence in the one would hide that the other is not read."""
    kinds = kinds_in(view.from_clients())
    return (_MOMENTS, _REST) if "second_moment" in kinds and kinds & set(_SUMS) else ()


def _part(view: View, part: str) -> View:
    left_out = _SUMS if part == _MOMENTS else ("second_moment",)
    messages = tuple(
        replace(message, fields={name: item for name, item in message.fields.items() if item.kind not in left_out})
        for message in view.messages
    )
    return replace(view, messages=messages)


def _named(dealt: _Dealt, name: str) -> Records:
    return dealt.held.take(np.arange(len(dealt.held)), name)


def _deal(context: AttackedContext, asked: Sequence[int], *, more: bool) -> list[_Dealt]:
    """Clients of control records under labels that are dealt at random; `more`: of those that are left."""
    held = np.unique(np.concatenate([client.labels for client in context.data.clients]))[:_LABELS]
    wanted = _clients(len(held), len(context.data.control))
    start = 0
    if more:
        start = _needed(wanted, len(held))
        wanted = _further(len(held), len(context.data.control) - start, asked)
    order = control_seeds(context, "membership", "control records").numpy().permutation(len(context.data.control))
    dealt = []
    for size in wanted:
        labels = np.tile(held, size)
        first, second = (
            context.data.control.take(order[begin : begin + len(labels)]).relabelled(labels)
            for begin in (start, start + len(labels))
        )
        dealt.append(_Dealt(first, second, size))
        start += 2 * len(labels)
    return dealt


def _clients(labels: int, records: int) -> list[int]:
    """Sizes of the clients that so many control records are enough for, as many other records kept aside.

    Raises:
        NotRunError: They are too few.
    """
    for members in (_MEMBERS, _MEMBERS // 2):
        sizes = _as_many(members, labels)
        if _needed(sizes, labels) <= records:
            return sizes
    needed = fewest_controls(labels)
    raise NotRunError(
        f"the method's own run on records that it is known to give away needs {needed} control records, and there "
        f"are {records}: {needed - records} more in data.split.control would decide",
        role="control",
        held=records,
        needed=needed,
    )


def fewest_controls(labels: int) -> int:
    """Control records below which the method's own run can give nothing away to a test of membership."""
    labels = min(labels, _LABELS)
    return _needed(_as_many(_MEMBERS // 2, labels), labels)


def _as_many(members: int, labels: int) -> list[int]:
    """Sizes of clients with about so many records together, of each size that there is."""
    return [size for size in SIZES for _ in range(math.ceil(members / (size * labels)))]


def _needed(sizes: Sequence[int], labels: int) -> int:
    """Control records of clients of these sizes, with as many others."""
    return 2 * labels * sum(sizes)


def _further(labels: int, records: int, asked: Sequence[int]) -> list[int]:
    """Sizes of further clients, in turn of each size that is asked, as far as what is left goes.

    Raises:
        NotRunError: Not one more client can be had.
    """
    most = [size for _ in range(math.ceil(_MORE / labels)) for size in asked]
    sizes: list[int] = []
    for size in most:
        if sizes.count(size) * size * labels < _MORE and _needed([*sizes, size], labels) <= records:
            sizes.append(size)
    if not sizes:
        raise NotRunError(f"{records} control records are left, too few for further clients of {labels} labels")
    return sizes


def _each_is_seen(context: AttackedContext) -> bool:
    """Whether clients are seen one by one."""
    view, names = context.view, {client.name for client in context.data.clients}
    senders = {message.sender for message in view.from_clients()} | {sender for sender, _ in view.models}
    return bool(names & (senders | set(view.generators)))
