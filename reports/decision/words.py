"""A policy in words, and what a guarantee rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedassay.data.account import Account
from fedassay.records.record import RunRecord, Verdict
from fedassay.reports.gate.judgement import Judgement, Mark, worst_mark
from fedassay.reports.gate.policy import EPSILON_LIMIT, Policy
from fedassay.reports.words.metrics import EPSILONS, hint, title
from fedassay.reports.words.numbers import short
from fedassay.support.adjacency import Adjacency

NEIGHBOURS: dict[Adjacency, str] = {
    "add_remove": "protects whether one {unit} took part",
    "replace_one": "protects which {unit} one is, its label too, but not how many there are",
    "replace_one_same_label": "protects which of the {unit}s with the same label one is, "
    "but not how many {unit}s have each label",
}
"""Protection by a guarantee, by adjacency."""

_CLAIMS = {
    "sound": "every claim of privacy was tested and holds",
    "not_disproved": "no claim of privacy is disproved, or exceeded by what is sent",
}

_FORBIDDEN: dict[Verdict, str] = {
    "leak": "no attack finds a leak",
    "unsound": "no claim of privacy is disproved",
    "unsupported": "what is sent adds up to no more than is claimed",
    "not_refuted": "the worst case of every claim is known",
    "inconclusive": "every audit decides",
    "not_run": "every audit runs",
    "no_leak_found": "every attack finds a leak",
    "sound": "no claim of privacy holds",
}
"""Demand of a policy that forbids a verdict."""


_COVERAGE = {
    "complete": "every attack that applies was conclusive, or the claim bounds what it looked for",
    "attacked": "at least one attack was run where any applies",
}


_OWN_KIND = "of each release's own unit and relation"


@dataclass(frozen=True)
class Rule:
    """A rule of a policy in words.

    Attributes:
        words: Question of the rule, as a clause.
        name: Of its judgements, or what their names begin with.
        about: The measured quantity, in a sentence; may be empty.
        alone: Answer where no judgement has its name; None: the policy does not ask it there.
    """

    words: str
    name: str
    about: str = ""
    alone: Mark | None = None

    def has(self, judgement: Judgement) -> bool:
        """Whether a judgement is of this rule."""
        return f"{judgement.rule} ".startswith(f"{self.name} ")

    def mark(self, judgements: Iterable[Judgement]) -> Mark | None:
        """The worst that judgements make of it; None where the policy does not ask it."""
        return worst_mark(each.mark for each in judgements if self.has(each)) or self.alone


ALWAYS = (
    Rule("an audit reached a verdict", "anything concluded"),
    Rule("no part of the run failed", "run"),
    Rule("every method that the policy names was run", "cells"),
)
"""Rules that apply to every run under any policy."""


def in_words(policy: Policy) -> tuple[Rule, ...]:
    """The rules of a policy, a clause each."""
    of = f" ({policy.epsilon_of.words or _OWN_KIND})"
    rules = [
        Rule(
            f"{_inside(title(name))} {side} {short(bound)}{of if name in EPSILONS else ''}",
            f"{'maximum' if side == 'at most' else 'minimum'} {name}",
            hint(name),
        )
        for side, bounds in (("at most", policy.maximum), ("at least", policy.minimum))
        for name, bound in bounds.items()
    ]
    if policy.above_majority:
        rules.append(Rule("accuracy above that of always naming the largest class", "above_majority"))
    if policy.exact_fields == "forbidden":
        words = "nothing is sent without noise except what the guarantee declares public"
        rules.append(Rule(words, "exact_fields"))
    if policy.claims in _CLAIMS:
        rules.append(Rule(_CLAIMS[policy.claims], "claims"))
    rules += [
        Rule(f"a result of the audit {name.replace('_', ' ')}", f"must_conclude {name}")
        for name in (each.removeprefix("other:") for each in policy.must_conclude)
    ]
    if policy.forbidden_verdicts:
        words = "; ".join(_FORBIDDEN[name] for name in policy.forbidden_verdicts)
        rules.append(Rule(words, "forbidden_verdicts"))
    if policy.delta == "one_in_n":
        words = "a δ of at most one over those whom the claim protects at the largest client"
        rules.append(Rule(words, "delta"))
    if policy.coverage in _COVERAGE:
        rules.append(Rule(_COVERAGE[policy.coverage], "coverage", alone="kept"))
    bound = policy.limit_of_detection.get(EPSILON_LIMIT)
    or_epsilon = "" if bound is None else f", or ε = {short(bound)}{of}"
    rules += [
        Rule(
            f"{name.replace('_', ' ')} may have missed at most {short(100 * share)} %{or_epsilon}",
            f"limit_of_detection {name}",
        )
        for name, share in policy.limit_of_detection.items()
        if name != EPSILON_LIMIT
    ]
    if policy.requires.demands:
        rules.append(Rule("the run is the one that the policy asks for", "requires"))
    return tuple(rules)


def _inside(words: str) -> str:
    """A title inside a sentence: SSIM stays SSIM."""
    return words if words[1:2].isupper() else words[:1].lower() + words[1:]


def standing_in_words(adjacency: Adjacency, unit: str) -> str:
    """Protection by a guarantee under an adjacency, for a unit of privacy."""
    return NEIGHBOURS[adjacency].format(unit=unit)


def grounds(record: RunRecord) -> tuple[str, ...]:
    """Sentences on the grounds of a decision: what was read, public data, and whether the noise was secret."""
    said = [f"{line[:1].upper()}{line[1:].rstrip('.')}." for line in account_of(record).lines()]
    out = [*_reading(record), *said, *_public(record), *_persons(record)]
    finite = [cell for cell in record.cells if cell.asked.finite]
    if not finite:
        return tuple(out)
    if any(cell.seed is not None for cell in finite):
        out.append(
            "The noise of this run was drawn from a seed and is not secret: what is deployed must draw its own "
            "(seeds: null)."
        )
    else:
        out.append("The noise was drawn from the system's generator and was not kept.")
    return tuple(out)


def _reading(record: RunRecord) -> list[str]:
    """Sentences on how files of captured messages were read; empty where there are none."""
    about = record.plan.get("transcript") if isinstance(record.plan, dict) else None
    said = about.get("read") if isinstance(about, dict) else None
    return [said] if isinstance(said, str) and not record.redacted else []


def account_of(record: RunRecord) -> Account:
    """Account of the user's own files, read and left out; empty where the record has none."""
    held = record.data.values() if isinstance(record.data, dict) else ()
    facts = next((each for each in held if isinstance(each, dict) and each.get("account")), {})
    return Account.of(facts.get("account"))


def _public(record: RunRecord) -> list[str]:
    """Sentences on the assumed public data and networks."""
    plan: dict[str, Any] = record.plan if isinstance(record.plan, dict) else {}
    out = []
    shares = _shares(record)
    weights = (plan.get("backbone") or {}).get("weights")
    if shares.get("public"):
        share = shares["public"] / sum(shares.values())
        out.append(
            f"{shares['public']:,} records, {share:.0%} of the data set, are taken to be public"
            + (", and the backbone was trained on them." if weights == "public" else ".")
        )
    if (plan.get("data") or {}).get("features"):
        out.append("The network that computed the features is taken to be public and to hold no private record.")
    elif weights not in {None, "public", "random"}:
        out.append(f"The backbone's weights ({weights}) are taken to be public and to hold no private record.")
    if shares.get("attacker"):
        out.append(f"The adversary is given {shares['attacker']:,} records of the same distribution.")
    return out


def _persons(record: RunRecord) -> list[str]:
    """Sentence on the persons behind the records; none for records of runs that do not state them."""
    for facts in record.data.values() if isinstance(record.data, dict) else ():
        whose = facts.get("persons") if isinstance(facts, dict) else None
        if not isinstance(whose, dict):
            continue
        if not isinstance(whose.get("persons"), dict):
            return ["Each record is taken to be of a person of its own: the plan names no data.groups."]
        private, most = whose["persons"].get("private"), whose.get("most_records")
        return [f"The private records are of {private:,} persons (data.groups), with up to {most:,} records each."]
    return []


def _shares(record: RunRecord) -> dict[str, int]:
    """Records by role, of the first seed."""
    for facts in record.data.values() if isinstance(record.data, dict) else ():
        if isinstance(facts, dict) and isinstance(facts.get("records"), dict):
            return dict(facts["records"])
    return {}
