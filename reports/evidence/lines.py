"""One line of evidence: a question that is asked, what the record answers, and where that stands in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedassay.contracts.facts import ResultKind
from fedassay.contracts.registry import attack_facts
from fedassay.records.facts import HARMS, HarmKind, ObstacleKind
from fedassay.records.record import CellRecord, Finding
from fedassay.reports.evidence.release import Release
from fedassay.reports.words.claims import refuted
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.harms import kind_sought, leaks, obstacle_of
from fedassay.reports.words.sentences import listed, open_clause, sees_little, sentence, silent_clause
from fedassay.support.registry import entries

Status = Literal["answered", "not decided", "not tested", "for a person"]
"""`not decided`: it was tested, and nothing follows."""

Mark = Literal["bounded by the claim", "sent openly", "does not apply"]
"""`bounded by the claim`: attacks said nothing, and a claim that holds leaves so much. `sent openly`: it stands in
what is sent, and the guarantee declares it public. `does not apply`: nothing is sent in which it could be.
"""

PERSON = "for a person to fill in"
"""Entry where no record can answer."""

BESIDE_REFUTED = "The claim is disproved; that attacks showed nothing says little beside that."

NOT_TESTED = "No audit of the run looked for it."
RUN = " Of those that were run: "
"""Before what the attacks came to that were run, where others were not."""

NOT_READ: dict[ObstacleKind, str] = {
    "not_possible": "No attack could be made: what it needs is not sent, or not at hand.",
    "nothing_to_read": "The messages hold nothing that the attack reads.",
}
"""Sentences on attacks that were tried without input; another attack may still find something."""


@dataclass(frozen=True)
class Line:
    """A question and its answer.

    Attributes:
        clause: Article, recital, clause or heading of the source; empty where it could not be cited exactly.
        question: The question, in our words.
        status: Source of the answer, or why there is none.
        answer: From the record, or a person's task, in one sentence.
        pointers: JSON pointers (RFC 6901) to the places in record.json that the answer is made of; empty where a
            person has to answer.
        found: Whether the harm looked for was found; None where none was looked for.
        mark: Stands for the status where nothing was found by measuring; None elsewhere.
    """

    clause: str
    question: str
    status: Status
    answer: str
    pointers: tuple[str, ...] = ()
    found: bool | None = None
    mark: Mark | None = None

    @property
    def shown(self) -> str:
        """The status, in the words of somebody who reads what came of it."""
        if self.mark is not None:
            return self.mark
        if self.status != "answered" or self.found is None:
            return self.status
        return "found" if self.found else "nothing found"


@dataclass(frozen=True)
class Sought:
    """Attacks that look for something, by their results.

    Attributes:
        gives: Kinds of results that they give.
        candidates: Whether they take a list of candidates, whatever they give.
    """

    gives: tuple[ResultKind, ...] = ()
    candidates: bool = False

    def by(self, attack: str) -> bool:
        """Whether an attack that is installed is one of them."""
        if attack not in entries("attack"):
            return False
        facts = attack_facts(attack)
        if facts.takes_gallery:
            return self.candidates
        return bool(set(self.gives) & set(facts.gives))


NOTHING = Sought()

GIVES: dict[HarmKind, Sought] = {
    "pictures": Sought(("reconstructions", "inversions")),
    "exact": Sought(("vectors",)),
    "named": Sought(candidates=True),
    "members": Sought(("scores",)),
    "attributes": Sought(("counts",)),
    "counts": Sought(("remarks",)),
}
"""Results of attacks that look for a harm; names come from attacks that take a list of candidates."""


def all_of(*kinds: HarmKind) -> Sought:
    """The attacks that look for one of several harms."""
    gives = tuple(each for kind in kinds for each in GIVES[kind].gives)
    return Sought(gives, any(GIVES[kind].candidates for kind in kinds))


def left_out(release: Release, sought: Sought) -> tuple[str, tuple[str, ...]]:
    """The attacks that apply to a release and were not part of its run, in words, and where the record says so."""
    out: dict[str, None] = {}
    places = []
    for number, cell in release.cells:
        for place, row in enumerate(cell.coverage):
            if row.status == "not_run" and sought.by(row.attack):
                out.setdefault(row.attack)
                places.append(f"/cells/{number}/coverage/{place}")
    if not out:
        return "", ()
    attacks, were = ("attacks", "apply, but were") if len(out) > 1 else ("attack", "applies, but was")
    return f"The {attacks} {listed(out, limit=len(out))} {were} not part of the run.", tuple(places)


def by_person(clause: str, question: str, guidance: str) -> Line:
    """A question that no record answers, with one sentence on how to."""
    return Line(clause, question, "for a person", guidance)


def from_cells(
    release: Release,
    clause: str,
    question: str,
    field: str,
    say: Callable[[CellRecord], str],
    unless: str,
    status: Status = "answered",
) -> Line:
    """A question that every cell of the release answers: equal answers are said once.

    Args:
        release: The release in question.
        clause: See `Line`.
        question: The question.
        field: Place of the answer in a cell, as the end of a JSON pointer such as `/privacy/accounted`.
        say: The answer of one cell as a sentence; empty where it has none.
        unless: Answer where no cell has one.
        status: Of that.
    """
    said: dict[str, None] = {}
    pointers = []
    for number, cell in release.cells:
        if words := say(cell):
            said.setdefault(words)
            pointers.append(f"/cells/{number}{field}")
    if said:
        return Line(clause, question, "answered", " ".join(said), tuple(pointers))
    places = () if status == "not tested" else tuple(f"/cells/{number}" for number, _ in release.cells)
    return Line(clause, question, status, unless, places)


def from_findings(
    release: Release,
    clause: str,
    question: str,
    looks: Callable[[Finding], bool],
    implied: Callable[[Finding], bool] | None = None,
    sought: Sought = NOTHING,
) -> Line:
    """A question that was put to the release by attacks.

    A leak answers it whatever else was found; without one, silence answers it only where nothing is left open,
    and no attack that applies was left out. An attack that could not be run says why. Where several findings are
    merged the worst state stands for all.

    Args:
        release: The attacked release.
        clause: See `Line`.
        question: The question.
        looks: Whether a finding looked for what is asked.
        implied: Whether a finding looked for something worse, which answers the question where it leaks.
        sought: Attacks that look for the answer.
    """
    found = [(place, finding) for place, finding in release.findings() if looks(finding)]
    every = leaks(release.option.group.cells)
    worst = next((leak for leak in every if looks(leak.finding)), None)
    if worst is None and implied is not None:
        worst = next((leak for leak in every if implied(leak.finding)), None)
    if worst is not None:
        places = tuple(place for place, finding in release.findings() if finding == worst.finding)
        return Line(clause, question, "answered", sentence(harm_clause(worst)), places, found=True)
    # One without a verdict has a limit where the claim bounds what it looked for.
    open_ = [pair for pair in found if pair[1].verdict == "inconclusive" and pair[1].limit is None]
    silent = [pair for pair in found if pair not in open_ and pair[1].verdict in ("no_leak_found", "inconclusive")]
    if open_:
        place, finding = min(open_, key=lambda each: HARMS.index(kind_sought(each[1])))
        return Line(clause, question, "not decided", _open(finding), (place,))
    if silent and any(refuted(cell) for _, cell in release.cells):
        return Line(clause, question, "not decided", BESIDE_REFUTED, tuple(place for place, _ in silent))
    left, gaps = left_out(release, sought)
    if silent:
        return _of_silence(release, Line(clause, question, "not tested", left, gaps), silent)
    if left:
        return Line(clause, question, "not tested", left, gaps)
    for place, finding in found:
        if (obstacle := obstacle_of(finding)) is not None:
            return Line(clause, question, "not tested", NOT_READ.get(obstacle.kind, _open(finding)), (place,))
    return Line(clause, question, "not tested", NOT_TESTED)


def _of_silence(release: Release, untested: Line, silent: Sequence[tuple[str, Finding]]) -> Line:
    """The line of findings without a leak; `untested` names the attacks that were left out, if any."""
    words = sentence(silent_clause([finding for _, finding in silent], release.option.group.asked))
    places = tuple(place for place, _ in silent)
    if any(sees_little(finding) for _, finding in silent):
        return replace(untested, status="not decided", answer=words, pointers=places)
    if untested.answer:
        said = f"{untested.answer}{RUN}{words[:1].lower()}{words[1:]}"
        return replace(untested, answer=said, pointers=(*untested.pointers, *places))
    bounded = any(finding.verdict == "inconclusive" for _, finding in silent)
    mark: Mark | None = "bounded by the claim" if bounded else None
    return replace(untested, status="answered", answer=words, pointers=places, found=False, mark=mark)


def _open(finding: Finding) -> str:
    obstacle = obstacle_of(finding)
    return "" if obstacle is None else sentence(open_clause(finding, obstacle))
