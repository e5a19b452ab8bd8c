"""Declared facts of the membership audit."""

from __future__ import annotations

from fedassay.audits.foreseen import few_controls, few_releases, joined_words
from fedassay.contracts.facts import AuditFacts, Given, ReportSection, SarifRule
from fedassay.contracts.metrics import ACCOUNTED, CLAIMED, OBSERVED
from fedassay.contracts.sizes import Load, Planned, Sizes
from fedassay.plan import rates as rate
from fedassay.support.metrics import MetricFacts, Scale

_CONTROL = 5.0
"""Seconds of the end-to-end control: nine runs of the method or more, on a few records."""
_TRIAL = 0.1
"""Seconds of a trial of the informed adversary."""
_RUN = 4e-3
"""Seconds of a run of the method for whole clients or the worst record, besides the method itself."""


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    # The negative control runs every method on both halves of the records.
    runs = 2.0 * float(given["record_runs"]) if given["records"] else 0.0
    runs += 2.0 * float(given["client_runs"]) * _of_clients(given)
    once = rate.AUDIT + _CONTROL + _TRIAL * float(given["trials"])
    return load.cells * (once + _RUN * runs) + (1 + runs) * load.seconds


def _of_informed(given: Given) -> int:
    """Tests of the adversary that knows all records but one."""
    return 4 if given["trials"] or given["releases"] else 0


def _of_clients(given: Given) -> int:
    """Findings on whole clients."""
    return len(set(given["client_tests"])) if given["clients"] else 0


def _foreseen(given: Given, planned: Planned) -> str:
    from fedassay.audits.membership.nonprivate import fewest_controls

    return joined_words(
        (
            few_controls(planned, fewest_controls(planned.sizes.classes)),
            few_releases(planned, "releases", given["releases"]),
        )
    )


MEMBERSHIP = AuditFacts(
    judges=("scores",),
    needs=("known_members",),
    metrics=(
        MetricFacts(
            "auc",
            "AUC",
            "Area under the ROC curve of the membership test; 0.5 is guessing.",
            worse="higher",
            scale=Scale("members told (AUC)", 0.5, 1.0),
        ),
        MetricFacts(
            "tpr_at_1pct",
            "TPR at 1 % FPR",
            "Members found while 1 % of non-members are accused.",
            worse="higher",
        ),
        MetricFacts(
            "tpr_at_0.1pct",
            "TPR at 0.1 % FPR",
            "Members found while 0.1 % of non-members are accused.",
            worse="higher",
        ),
        MetricFacts(
            "auc_alone",
            "AUC, one at a time",
            "The same area by the likelihood ratio of each candidate by itself.",
            worse="higher",
        ),
        MetricFacts(
            "auc_joint",
            "AUC, jointly",
            "The same area by the weights of all candidates, solved for together.",
            worse="higher",
        ),
        MetricFacts(
            "auc_allowed",
            "AUC that the noise allows",
            "The largest area that any test of independently included records can have under the declared noise.",
        ),
        MetricFacts(
            "records_named",
            "Records named",
            "Candidates that a certificate names as members, fixed before the truth was joined.",
            worse="higher",
        ),
        MetricFacts(
            "wrongly_named",
            "Wrongly named",
            "Share of the named candidates that are no members.",
        ),
        MetricFacts(
            "auc_records",
            "AUC of records",
            "The same area of single records, one of each person, where data.groups names their persons.",
            worse="higher",
        ),
        MetricFacts(
            "persons_above_all",
            "Persons above all strangers",
            "Share of the member persons who score above every stranger: those who are worst off.",
            worse="higher",
        ),
        MetricFacts(
            "auc_clients",
            "AUC of clients",
            "The same area of whole clients against as many strangers, from four clients on.",
            worse="higher",
        ),
        MetricFacts(
            "auc_swaps",
            "AUC of swapped clients",
            "Area under the ROC curve over all runs and clients that coins swap; 0.5 is guessing.",
            worse="higher",
        ),
        MetricFacts(
            "worst_record",
            "Worst record",
            "Share of runs with a right guess whether the most exposed record was in; 0.5 is chance.",
            worse="higher",
        ),
        MetricFacts("mean_record", "Mean record", "The same, on the mean over these records.", worse="higher"),
        MetricFacts(
            "records_told", "Records told", "Records that are told better than by chance.", worse="higher"
        ),
        *(
            fact
            for name, what in (("person", "one person with all of its records"), ("client", "one whole client"))
            for fact in (
                MetricFacts(
                    f"worst_{name}_told",
                    f"Worst {name} told",
                    f"Share of runs with a right guess whether {what} was in, the most exposed; 0.5 is chance.",
                    worse="higher",
                ),
                MetricFacts(
                    f"mean_{name}_told",
                    f"Mean {name} told",
                    f"The same, on the mean over {name}s.",
                    worse="higher",
                ),
                MetricFacts(
                    f"{name}s_told",
                    f"{name.capitalize()}s told",
                    f"{name.capitalize()}s that are told better than by chance.",
                    worse="higher",
                ),
            )
        ),
        CLAIMED,
        ACCOUNTED,
        OBSERVED,
    ),
    place=ReportSection("attacks", "Membership", order=40, always=True),
    rule=SarifRule(
        "Members must not be distinguishable from others.",
        taxa=("CWE-359", "AML.T0024.000", "ML04"),
        help="Members can be recognised: add noise or lower epsilon, train for fewer steps, or regularise more.",
    ),
    threats=("membership_inference",),
    tests_per_cell=9,
    more_tests=lambda given: _of_informed(given) + int(given["records"] > 0) + _of_clients(given),
    cost=_seconds,
    foresee=_foreseen,
)
