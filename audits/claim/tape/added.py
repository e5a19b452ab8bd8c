"""The first question: was the noise added?

Exactly: what came out of every draw is what went in plus the declared scale times the normals of the draw's own
stream, computed again here; the scale is held against the release that the message declares; no two draws share
their normals; no two cells share their root. Then statistically, for the generator itself
(`fedassay.audits.claim.tape.blocks`). Private trainings are followed step by step as they run
(`fedassay.audits.claim.training`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from fedassay.audits.claim.tape.answers import Answer, Fault, answered
from fedassay.audits.claim.tape.blocks import LEVEL, BlockTest, noise_in_blocks
from fedassay.audits.claim.tape.coverage import Covered, field_of, misdeclared
from fedassay.audits.claim.tape.external import TRIALS, broken_promise
from fedassay.audits.claim.tape.measured import Measured, measured
from fedassay.audits.claim.tape.streams import expected, fingerprint, standardised
from fedassay.audits.claim.training import training_facts
from fedassay.contracts.audit import AuditContext
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.privacy.tape import Draw, ExternalMechanism, Key, Tape
from fedassay.support.seeds import Seeds
from fedassay.support.types import Matrix

_ROOTS = "roots of noise by cell"


def noise_answer(context: AuditContext, cells: Sequence[Covered]) -> Answer:
    """Was the noise added that the messages of a run declare?

    Args:
        context: Of the run, with its tape.
        cells: Protection of each noised field.
    """
    tape = context.tape
    faults = [Fault(each.field, each.words) for each in tape.faults]
    faults += [Fault("", words, "not_asked") for words in tape.lacks]
    faults += _undrawn(context, [covered for covered in cells if not covered.draws and _speaks(covered)])
    for covered in cells:
        if covered.draws and (words := misdeclared(covered)):
            faults.append(Fault(", ".join(covered.fields), words))
        elif _off_the_grid(covered):
            words = (
                f"{covered.where}: shares of a sum's noise are not rounded to a public grid, so the last bits of "
                "the sum depend on each exact share; fedassay.privacy.secure_sums rounds them"
            )
            faults.append(Fault(", ".join(covered.fields), words, "not_asked"))
    faults += _not_the_stream(tape, list(cells))
    faults += _shared_streams(context, list(cells))
    faults += _of_sealed(context, list(cells))
    faults += _of_trainings(context)
    blocks = _tested(tape, list(cells))
    if blocks is not None and blocks.p <= LEVEL / max(1, context.num_tests):
        faults.append(Fault(blocks.statistic, _rejected(blocks)))
    return answered("noise", faults, _tried(context, blocks), None if blocks is None else blocks.p)


def _off_the_grid(covered: Covered) -> bool:
    """Whether noise that is divided over a sum's senders is added in floating point."""
    draws = (entry for entry in covered.draws if isinstance(entry, Draw) and entry.scale > 0)
    return covered.release.shares > 1 and any(entry.grid == 0 for entry in draws)


def _speaks(covered: Covered) -> bool:
    """Whether there is anything to protect: an empty field says nothing."""
    return any(covered.message.fields[name].size for name in covered.fields)


def _undrawn(context: AuditContext, missing: Sequence[Covered]) -> list[Fault]:
    """Fields with noise on no tape: it is measured, and too little of it refutes the declaration."""
    unnamed = [covered for covered in missing if _drawn_elsewhere(context.tape, covered)]
    faults = [Fault(", ".join(covered.fields), _name_the_cell(covered), "not_asked") for covered in unnamed]
    missing = [covered for covered in missing if covered not in unnamed]
    if not missing:
        return faults
    found = measured(context)
    if found.status == "crashed":
        return [Fault("", found.reason, "crashed")]
    return faults + [fault for covered in missing for fault in _of_undrawn(covered, found)]


def _drawn_elsewhere(tape: Tape, covered: Covered) -> bool:
    """Whether the release has draws, but none that names this one of its cells."""
    name = covered.release.group or covered.fields[0]
    own = (covered.message.sender, covered.message.round, name)
    return any((key.sender, key.round, key.field) == own for key in tape.draws)


def _name_the_cell(covered: Covered) -> str:
    return (
        f"no noise of {covered.where} names this cell, though the release has noise of its own: write "
        f"{covered.noise_mechanism}"
    )


def _of_undrawn(covered: Covered, found: Measured) -> Iterator[Fault]:
    left = []
    for name in covered.fields:
        own = found.fields.get(name)
        if name in found.still:
            where = f"{name} of {found.still[name]}"
            yield Fault(
                name, f"{where} is the same to the bit in runs with other seeds: it has no noise of its own"
            )
        elif own is not None and own.outcome == "too_little":
            yield Fault(name, f"{name} carries less noise than it declares: {found.words(name)}")
        elif covered.message.fields[name].size:
            left.append(name)
    for name in left:
        words = f"the noise of {name} was not drawn from task.mechanism: write {covered.noise_mechanism}"
        yield Fault(name, f"{words}; {found.words(name)}", "not_asked")


def _not_the_stream(tape: Tape, cells: list[Covered]) -> Iterator[Fault]:
    """Draws with an output that differs from their own stream's."""
    if tape.root is None or tape.lacks:
        return
    for key, draw in tape.draws.items():
        if isinstance(draw, Draw) and not np.array_equal(draw.out, own := expected(draw, tape.root)):
            field = field_of(key, cells)
            yield Fault(field, f"{_name(key, field)}: {_unlike(draw, own)}")


def _of_sealed(context: AuditContext, cells: list[Covered]) -> Iterator[Fault]:
    """Mechanisms of other libraries that known inputs refute, or that a resumed run no longer has."""
    for key, entry in context.tape.draws.items():
        if not isinstance(entry, ExternalMechanism):
            continue
        field = field_of(key, cells)
        if entry.mechanism is None:
            words = f"{_name(key, field)}: {entry.library}'s mechanism was not kept with the interrupted run"
            yield Fault(field, words, "not_asked")
        elif words := broken_promise(entry, context.seeds.numpy("tape", "sealed", *key.path)):
            yield Fault(field, f"{_name(key, field)}: {words}")


def _unlike(draw: Draw, own: Matrix) -> str:
    if draw.out.shape != own.shape:
        return f"shape {draw.out.shape} came out where {own.shape} went in"
    if draw.scale == 0:
        return "something was added where no noise was declared"
    noise, added = own - draw.exact, draw.out - draw.exact
    share = float(np.sum(noise * added) / max(float(np.sum(noise * noise)), 1e-300))
    rest = float(np.sqrt(np.mean((added - share * noise) ** 2))) / draw.scale
    if rest < 1e-6:
        return f"{share:.4g} times the noise of its stream was added, not the whole"
    wrong = int(np.count_nonzero(draw.out != own))
    return f"{wrong:,} of {own.size:,} numbers are not what went in plus the noise of its stream"


def _name(key: Key, field: str) -> str:
    step = f", step {key.step}" if key.step else ""
    cell = "" if key.cell == "all" else f", {key.cell}"
    return f"{field} of {key.sender} in round {key.round}{cell}{step}"


def _shared_streams(context: AuditContext, cells: list[Covered]) -> Iterator[Fault]:
    """Draws that begin alike, here or in another cell that shares its results, and streams that are public."""
    tape = context.tape
    seen: dict[bytes, Key] = {}
    for key, draw in tape.draws.items():
        own = fingerprint(draw) if isinstance(draw, Draw) and draw.scale else None
        if own is None:
            continue
        if own in seen:
            field = field_of(key, cells)
            yield Fault(field, f"{_name(key, field)}: the same noise as {seen[own]}")
        seen[own] = key
    for key, training in trainings(tape).items():
        if training.coins is not None and _public(training.coins, context):
            words = "its sampling is drawn from the root of the cell's public streams, so nothing is amplified"
            yield Fault(key.field, f"{_name(key, key.field)}: {words}")
    if tape.root is None:
        return
    if _public(tape.root, context):
        yield Fault("", "the noise is drawn from the root of the cell's public streams")
    roots = context.data.shared.setdefault(_ROOTS, {})
    assert isinstance(roots, dict)
    cell = context.io.prefix[0]
    other = roots.setdefault(tape.root, cell)
    if other != cell:
        yield Fault("", f"{cell} draws its noise from the same streams as {other}: their messages subtract")


def _public(root: Seeds, context: AuditContext) -> bool:
    """Whether streams of this root are those that a run draws public numbers from."""
    return root == context.seeds or root == Seeds(root.seed)


def _of_trainings(context: AuditContext) -> Iterator[Fault]:
    """Fields under DP-SGD: every one has its training, and every training is what it declares."""
    transcript = context.outcome.transcript
    entries = trainings(context.tape)
    seen = {(key.sender, key.round) for key in entries}
    for message in transcript.from_clients():
        for name, item in message.fields.items():
            if item.release.mechanism == "dp_sgd" and (message.sender, message.round) not in seen:
                where = f"{name} of {message.sender} in round {message.round}"
                yield Fault(
                    name, f"the training behind {where} did not go through the noise mechanism", "not_asked"
                )
    facts = training_facts(context.tape, transcript)
    names = [n for m in transcript.from_clients() for n, i in m.fields.items() if i.release.mechanism == "dp_sgd"]
    if facts is not None and facts.broken:
        yield Fault(names[0] if names else "", facts.broken)
    if facts is not None and facts.lacks:
        yield Fault(names[0] if names else "", facts.lacks, "not_asked")


def _tested(tape: Tape, cells: list[Covered]) -> BlockTest | None:
    """The statistical test, statistic by statistic: of all senders and rounds together."""
    found: dict[str, list[Matrix]] = defaultdict(list)
    names: dict[tuple[str, str], str] = {}
    for key, draw in tape.draws.items():
        if isinstance(draw, Draw) and draw.scale > 0:
            about = (key.field, key.part)
            if about not in names:
                names[about] = field_of(key, cells)
            found[names[about]].append(standardised(draw))
    return noise_in_blocks([(name, np.concatenate(values)) for name, values in found.items()])


def _rejected(blocks: BlockTest) -> str:
    share = "" if math.isnan(blocks.share) else f" is {blocks.share:.3g} of the declared"
    return f"the noise in {blocks.block}{share} (p = {blocks.p:.1g})"


def _tried(context: AuditContext, blocks: BlockTest | None) -> str:
    tape = context.tape
    draws = sum(isinstance(entry, Draw) and entry.scale > 0 for entry in tape.draws.values())
    words = []
    if draws and blocks is not None:
        words.append(
            f"the noise of {draws:,} draws ({blocks.numbers:,} numbers) was computed again and is what was added; "
            f"normal and independent in size, windows of {blocks.window}, lags and shape (p = {blocks.p:.2g})"
        )
    sealed = [entry for entry in tape.draws.values() if isinstance(entry, ExternalMechanism)]
    if sealed:
        words.append(
            f"{len(sealed)} outputs of {sealed[0].library} cannot be computed again; on known inputs it "
            f"shows no more than it promises ({TRIALS:,} numbers a side)"
        )
    facts = training_facts(tape, context.outcome.transcript)
    if facts is not None:
        words.append(facts.shown)
    return "; ".join(words) or "no noise is declared"
