"""Form of questions by law, regulators and standards about a release, by article or clause where known exactly.

A client's message is assessed as a disclosure to the server, not as a released model. A source names the page of
its own publisher that was read for it, or the document alone: copies on other sites are no sources. The questions
are in our words; the signer reads the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice

from fedassay.contracts.facts import Threat
from fedassay.contracts.registry import attack_facts, audit_facts, every_audit, judges_the_claim
from fedassay.records.facts import HarmKind
from fedassay.records.record import CellRecord, Finding
from fedassay.reports.evidence.fields import assumed, named, noise, people
from fedassay.reports.evidence.lines import GIVES, Line, Sought, all_of, by_person, from_cells, from_findings
from fedassay.reports.evidence.release import Release
from fedassay.reports.evidence.risk import likelihood_line, residual_line, risk_line
from fedassay.reports.gate.covered import applies
from fedassay.reports.words.claims import claim_clause, claims, refuted
from fedassay.reports.words.harms import BY_THREAT, kind_sought
from fedassay.reports.words.numbers import short, significant, with_kind
from fedassay.reports.words.sentences import listed, sentence
from fedassay.reports.words.untested import gaps, not_sought, not_tested
from fedassay.support.registry import entries

_MESSAGE = "A client's message is assessed here as a disclosure to the server, not as a released model."
_ATTACKS = 6
"""Names of attacks that one line lists."""
_OPEN = {"not run": "Attacks that apply and were not run", "inconclusive": "Attacks that gave no result"}
"""Outcomes of attacks that were not conclusive, in words."""


@dataclass(frozen=True)
class Source:
    """A document that asks, with its questions answered.

    Attributes:
        name: The document.
        lines: Its questions, in its order.
        read: Its publisher's own page, where one could be read; empty where the document alone is cited.
    """

    name: str
    lines: tuple[Line, ...]
    read: str = ""


def form(release: Release) -> tuple[Source, ...]:
    """Every source, with its questions answered from a release or left to a person."""
    return (
        Source("GDPR (Regulation (EU) 2016/679), Article 35", _impact(release)),
        Source("GDPR, Article 25", _design(release)),
        Source("GDPR, Article 32", _security(release)),
        Source("GDPR, Recital 26", _recital()),
        Source("EDPB, Opinion 28/2024 on AI models (17 December 2024)", _models(release)),
        Source(
            "Article 29 Working Party, Opinion 05/2014 on anonymisation techniques (WP216)",
            _anonymisation(release),
        ),
        Source(
            "ISO/IEC 27559:2022, privacy enhancing data de-identification framework",
            _framework(release),
        ),
        Source(
            "NIST SP 800-226, evaluating differential privacy guarantees",
            _guarantee(release),
            "https://csrc.nist.gov/pubs/sp/800/226/ipd",
        ),
        Source(
            "ICO, anonymisation guidance: the motivated intruder",
            _intruder(release),
            "https://cy.ico.org.uk/for-organisations/uk-gdpr-guidance-and-resources/data-sharing/anonymisation/"
            "how-do-we-ensure-anonymisation-is-effective",
        ),
    )


_NONE_OPEN = "None: every attack that applies was conclusive."


def _impact(release: Release) -> tuple[Line, ...]:
    return (
        by_person(
            "(2)", "What does the data protection officer advise?", "Add the advice, or say that none is due."
        ),
        from_cells(
            release, "(7)(a)", "Which data does a client send?", "/ledger", _sent, "No field was recorded."
        ),
        people(release, "(7)(a)", "How many people's data are they?"),
        by_person(
            "(7)(a)",
            "What kinds of people and of data are they?",
            "Name them: patients, employees, children; special categories (Article 9).",
        ),
        by_person(
            "(7)(a)",
            "Who receives what is sent, and how long is it kept?",
            "Name recipients, countries and deletion periods.",
        ),
        by_person(
            "(7)(a)",
            "What is the purpose, and which legitimate interest is pursued?",
            "State the purpose of the training, and the interest where the controller relies on one.",
        ),
        _worth(release, "(7)(b)", "What is the model worth?"),
        by_person(
            "(7)(b)",
            "Is sending this necessary and proportionate?",
            "Say why less data, more noise or no training at all would not serve the purpose.",
        ),
        risk_line(release, "(7)(c)", "Which risks to the people were found, and how severe are they?"),
        likelihood_line(release, "(7)(c)", "How likely are they?"),
        from_cells(
            release, "(7)(d)", "Which measures protect people?", "/ledger", _measures, "None: no noise is added."
        ),
        by_person(
            "(7)(d)",
            "Which further measures bind whoever receives the messages?",
            "Name contracts, access rights and transport encryption.",
        ),
        residual_line(release, "(7)(d)", "Which risk remains after these measures?"),
        by_person(
            "(7)(d)",
            "Is the remaining risk acceptable?",
            "Decide it; a high one goes to the supervisory authority first (Article 36).",
        ),
        by_person("(9)", "What do the people concerned say?", "Add their views, or say why they were not asked."),
        by_person("(11)", "When is this reviewed?", "Set a date, and review when method, epsilon or data change."),
    )


def _design(release: Release) -> tuple[Line, ...]:
    return (
        from_cells(
            release,
            "(1)",
            "What depends on people and is sent without noise?",
            "/ledger",
            _exact,
            _derived(release),
        ),
    )


def _security(release: Release) -> tuple[Line, ...]:
    return (
        _protection(release, "(1)(d)", "What did tests of the protection show?"),
        by_person("(1)(d)", "When is it tested again?", "Set a date, and test after every change of the system."),
    )


def _protection(release: Release, clause: str, question: str) -> Line:
    """Line on the outcome of the claim, or of attacks where nothing is claimed."""
    if not any(claims(cell) for cell in release.option.group.cells):
        return from_findings(release, clause, question, lambda _: True)
    missing = "No audit tested the claim."
    return from_cells(release, clause, question, "/privacy/verdict", _claim, missing, "not tested")


def _recital() -> tuple[Line, ...]:
    return (
        by_person(
            "",
            "Are the messages personal data?",
            f"{_MESSAGE} Decide which of the attacks below are means reasonably likely to be used.",
        ),
    )


def _models(release: Release) -> tuple[Line, ...]:
    return (
        from_findings(
            release,
            "",
            "Is membership inference possible?",
            looked_for("members", "named"),
            sought=all_of("members", "named"),
        ),
        from_findings(release, "", "Is attribute inference possible?", of_persons(), sought=Sought(("values",))),
        from_findings(
            release, "", "Is model inversion possible?", tests("model_inversion"), sought=GIVES["pictures"]
        ),
        from_findings(
            release,
            "",
            "Is reconstruction of training data possible?",
            looked_for("pictures", "exact"),
            sought=all_of("pictures", "exact"),
        ),
        _regurgitation(release),
        by_person(
            "Executive summary",
            "Is the likelihood of extracting personal data insignificant?",
            "The Opinion speaks of models; weigh the tests above for what a client sends.",
        ),
    )


def _regurgitation(release: Release) -> Line:
    """Whether generators give training data back; it does not apply where no audit of it has anything to judge."""
    question = "Is regurgitation of training data possible?"
    judges = [name for name, facts in every_audit().items() if "regurgitation" in facts.threats]
    if any(applies(cell, judge) for _, cell in release.cells for judge in judges):
        return from_findings(release, "", question, tests("regurgitation"))
    places = tuple(f"/cells/{number}/coverage" for number, _ in release.cells)
    return Line("", question, "answered", "No generator is sent.", places, found=False, mark="does not apply")


def _anonymisation(release: Release) -> tuple[Line, ...]:
    return (
        from_findings(
            release,
            "singling out",
            "Can a person's record be isolated in what is sent?",
            looked_for("pictures", "exact", "named"),
            sought=all_of("pictures", "exact", "named"),
        ),
        from_findings(
            release,
            "linkability",
            "Can a record that somebody holds be linked to what is sent?",
            looked_for("named", "members"),
            looked_for("pictures", "exact"),
            sought=all_of("named", "members"),
        ),
        from_findings(
            release,
            "inference",
            "Can an attribute of a person be deduced?",
            of_persons(),
            looked_for("attributes"),
            sought=Sought(("values",)),
        ),
    )


def _framework(release: Release) -> tuple[Line, ...]:
    return (
        assumed(release, "6.2", "Who is assumed to see what?"),
        from_cells(release, "7.2", "Which data are sent?", "/ledger", _sent, "No field was recorded."),
        from_cells(
            release,
            "7.3",
            "Which attacks apply and were not conclusive?",
            "/coverage",
            _untested,
            " ".join(filter(None, (_NONE_OPEN, not_tested(not_sought(release.option.group.cells))))),
        ),
        from_findings(release, "8.2.3", "What did adversarial testing find?", lambda _: True),
        from_cells(release, "8.3.3", "How are the data transformed?", "/ledger", noise, "No noise is added."),
        by_person("9.2", "Who answers for the release?", "Name the role, and the procedure before release."),
        by_person("9.3.2", "Who watches what becomes of it?", "Name who reviews new attacks and other releases."),
    )


def _guarantee(release: Release) -> tuple[Line, ...]:
    none = "No privacy is claimed."
    return (
        from_cells(release, "", "What is claimed, for whom?", "/privacy/claimed", _claimed, none),
        from_cells(release, "", "What does the mechanism give?", "/privacy/accounted", _accounted, none),
        _secrecy(release),
        by_person(
            "",
            "Are hyper-parameters and earlier releases charged?",
            "The accounting adds up this run alone; add what else the same people's data went into.",
        ),
        by_person(
            "",
            "Is utility alike for every group of people?",
            "Measure accuracy for each group that is affected; this run measures it for all together.",
        ),
        by_person("", "How are raw data collected, kept and accessed?", "Describe each of them."),
        by_person(
            "",
            "Could the method notice that it is audited, or leak by timing?",
            "No rerun shows either: say who read the code, and that what is deployed is what was audited.",
        ),
    )


def _intruder(release: Release) -> tuple[Line, ...]:
    line = from_findings(
        release, "", "Could an intruder with a list of candidates say who took part?", with_gallery
    )
    answering = (finding for place, finding in release.findings() if place in line.pointers)
    return (
        replace(line, answer=" ".join([line.answer, *map(_of_candidates, islice(answering, 1))])),
        by_person("", "Who would be motivated, and what would they gain?", "Name them, and what they can get at."),
    )


def looked_for(*kinds: HarmKind) -> Callable[[Finding], bool]:
    """Whether a finding looked for one of these harms."""
    return lambda finding: kind_sought(finding) in kinds


def of_persons() -> Callable[[Finding], bool]:
    """Whether a finding is of an audit that asks about attributes of persons."""
    return tests("attribute_inference")


def tests(threat: Threat) -> Callable[[Finding], bool]:
    """Whether a finding is of an audit that tests this threat; properties of clients are none of persons."""

    def looks(finding: Finding) -> bool:
        facts, own = audit_facts(finding.audit), BY_THREAT[threat] == "attributes"
        return facts is not None and threat in facts.threats and (kind_sought(finding) == "attributes") == own

    return looks


def with_gallery(finding: Finding) -> bool:
    """Whether a finding is of an attack that somebody with a list of candidates can make."""
    attack = finding.attack or ""
    return attack in entries("attack") and attack_facts(attack).takes_gallery


def _of_candidates(finding: Finding) -> str:
    """Sentence on the candidates named, those named wrongly, and the AUC."""
    named, wrong = finding.metrics.get("records_named"), finding.metrics.get("wrongly_named")
    if named is None or named.value is None:
        return "The number of named candidates was not measured."
    said = f"Of {named.n or 0:,} answers on candidates {named.value:,.0f} name one"
    if wrong is not None and wrong.value is not None:
        said += f", {wrong.value * named.value:,.0f} of these wrongly"
    area, most = (finding.metrics.get(name) for name in ("auc", "auc_allowed"))
    if area is not None and area.value is not None:
        said += f"; the AUC is {significant(area.value)}"
        said += "" if most is None or most.value is None else f" where the noise allows {significant(most.value)}"
    return sentence(said)


def _sent(cell: CellRecord) -> str:
    up = named(row for row in cell.ledger if row.direction == "up")
    return f"A client sends {up}." if up else ""


def _derived(release: Release) -> str:
    """Sentence on a release without noised fields: the fields that follow from noised ones, if any."""
    cells = (cell for _, cell in release.cells)
    rows = [row for cell in cells for row in cell.ledger if row.direction == "up" and not row.exact]
    free = named(row for row in rows if row.mechanism == "public" and row.kind != "public")
    return f"Nothing is: {free} follow from what is noised." if free else "Nothing is."


def _exact(cell: CellRecord) -> str:
    """Fields without noise, those too that the guarantee declares public: they speak of people all the same."""
    rows = [row for row in cell.ledger if row.direction == "up" and row.exact]
    private = named(row for row in rows if not row.public_under_adjacency)
    public = named(row for row in rows if row.public_under_adjacency and row.kind != "public")
    said = [private] if private else []
    said += [f"{public}, which the guarantee declares public"] if public else []
    return sentence("; ".join(said))


def _measures(cell: CellRecord) -> str:
    secure = named(row for row in cell.ledger if row.secure)
    short_of = "It is less than the claim says." if refuted(cell) and noise(cell) else ""
    return " ".join(filter(None, [noise(cell), short_of, f"Secure aggregation hides {secure}." if secure else ""]))


def _untested(cell: CellRecord) -> str:
    return left_open([cell]) if cell.coverage else "No attack that applies is on record."


def left_open(cells: Iterable[CellRecord]) -> str:
    """Sentences on attacks that apply and were not run, or were run without a result; empty without any."""
    found = gaps(cells)
    said = {words: [name for name, status in found.items() if status == words] for words in _OPEN}
    return " ".join(
        f"{lead}: {listed(said[words], limit=_ATTACKS)}." for words, lead in _OPEN.items() if said[words]
    )


def _worth(release: Release, clause: str, question: str) -> Line:
    """Accuracy with its interval, beside the same without privacy and that of naming the largest class."""
    if not release.answer.accuracy:
        return Line(clause, question, "not tested", "No accuracy was measured.")
    places = tuple(f"/cells/{number}/utility" for number, _ in release.cells)
    return Line(clause, question, "answered", release.answer.accuracy, places)


def _claimed(cell: CellRecord) -> str:
    claimed = cell.claimed
    return (
        f"ε = {with_kind(claimed)} at δ = {short(claimed.delta)}." if claimed is not None and claims(cell) else ""
    )


def _accounted(cell: CellRecord) -> str:
    if cell.accounted is None or not claims(cell):
        return ""
    return f"The messages add up to ε = {with_kind(cell.accounted, significant)}."


def _claim(cell: CellRecord) -> str:
    tested = any(judges_the_claim(finding.audit) for finding in cell.findings)
    return sentence(claim_clause(cell)) if tested and claims(cell) else ""


def _secrecy(release: Release) -> Line:
    """Line on whether the noise is secret; for captured messages a person has to answer."""
    question = "Is the noise secret?"
    if release.captured and any(noise(cell) for _, cell in release.cells):
        return by_person("", question, "Messages do not show it: say how the system draws its noise.")
    return from_cells(release, "", question, "/seed", _secret, "Nothing is noised.")


def _secret(cell: CellRecord) -> str:
    if not noise(cell):
        return ""
    return "No: the noise of this run follows from a seed." if cell.seed is not None else "Yes: it is not seeded."
