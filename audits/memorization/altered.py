"""Altered copies: what generated images give back in a space where pixel distance finds nothing, as evidence.

The question is that of the audit, asked in another space (`fedassay.audits.memorization.spaces`): are more
training than held-out records the nearest of a generated image, with an adaptive distance under the threshold?
The adaptive distance is calibrated by the neighbours of each image there, and the exact test by held-out records.

The answer can turn a verdict into a leak, and never a leak into anything else: that no altered copy was found
shows no more than that the space does not see one. It counts only where copies that were altered on purpose are
caught, and where images that know nothing of the records they are asked about show less than half as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fedassay.audits.evidence import DOUBTED, REACH, Arms, by_p_value
from fedassay.audits.memorization.judging import Memory
from fedassay.audits.memorization.looking import Looks, Watched
from fedassay.audits.memorization.scores import Scores, Search
from fedassay.audits.memorization.spaces import Space, SpaceName, space_named
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.exchange.models import Generator
from fedassay.records.facts import Harm
from fedassay.records.record import Metric, unmeasured
from fedassay.support.errors import NotRunError
from fedassay.support.types import Ints


@dataclass(frozen=True, eq=False)
class Altered:
    """Evidence of altered copies.

    Attributes:
        memory: Of the audited generators, in the space.
        control: Of copies that were altered on purpose, in the space.
        by_pixels: Of the same copies, by pixel distance.
        negative: Of images made without the records they are asked about; None where these are too few.
        space: The space that the copies were searched in.
    """

    memory: Memory
    control: Memory
    by_pixels: Memory
    negative: Memory | None
    space: Space

    @property
    def counted(self) -> str:
        """Return the reason why the evidence does not count; empty where it does."""
        if not (self.control.test.rejects or self.control.test.uncorrected):
            return f"not counted: copies altered on purpose are not seen there (p = {self.control.copied.p:.2g})"
        if self.negative is None:
            return "not counted: too few records for a negative control"
        p, reach = self.negative.copied.p, self.negative.copied.high
        if p <= DOUBTED and self.memory.copied.value <= REACH * reach:
            return f"not counted: records that no generator saw are given back, too (p = {p:.2g})"
        return ""

    @property
    def shown(self) -> str:
        """The figures, in words."""
        control, pixels = self.control.copied.value, self.by_pixels.copied.value
        counted = f"; {self.counted}" if self.counted else ""
        return (
            f"altered copies ({self.space.words}): {self.memory.shown} (of copies altered on purpose "
            f"{control:+.1%}, by pixel distance {pixels:+.1%}){counted}"
        )

    @property
    def metric(self) -> Metric:
        """The share of records that are given back in altered form."""
        gap = self.memory.copied
        return Metric(value=gap.value, low=gap.low, high=gap.high, n=gap.n[0], reason=self.shown)

    def towards_leak(self, arms: Arms) -> Arms:
        """The arms with this evidence beside theirs: a leak where it shows one, else what they were."""
        result = replace(arms.result, shown=f"{arms.result.shown}; {self.shown}")
        test = by_p_value(self.memory.copied.p, self.memory.tests, "altered_copied")
        if self.counted or result.test.rejects or not test.rejects:
            return replace(arms, result=result)
        count, total = self.memory.copies, len(self.memory.training)
        harm = Harm(kind="pictures", of="training_record", count=count, total=total, mechanism="memorized")
        leak = "altered copies of training records are given back"
        found = replace(result, test=test, leak=leak, below_baseline="", harm=harm)
        # A confounder of closeness does not explain copies, which have a negative control of their own.
        return replace(arms, result=found, confounder=None)


def copies_metric(told: Altered | str) -> dict[str, Metric]:
    """The metric of altered copies: absent where not asked for, unmeasured with a reason where not searched."""
    if not told:
        return {}
    metric = unmeasured(told) if isinstance(told, str) else told.metric
    return {"altered_copied": metric}


@dataclass(eq=False)
class Watch:
    """Search for altered copies among the images of the audited generators and of their controls.

    Attributes:
        space: The space of the search; None: not asked for, or there is none.
        why: Reason why there is none, where one was asked for.
        search: Parameters of the scores.
        looks: The images searched so far, by arm.
    """

    space: Space | None
    why: str
    search: Search
    looks: dict[str, Looks] = field(default_factory=dict)

    def over(
        self,
        arm: Literal["audited", "negative", "control"],
        generator: Generator,
        asked: tuple[Records, Ints, Records],
    ) -> Generator:
        """The generator, watched where somebody looks; `asked` are the records of `scores.score`."""
        if self.space is None:
            return generator
        looks = self.looks.setdefault(arm, Looks(self.space, self.search))
        return Watched(generator, looks.beside(*asked))

    def told(
        self, judged: Callable[[Sequence[Scores], str], Memory], by_pixels: Callable[[], Memory]
    ) -> Altered | None:
        """Return the evidence of altered copies; None where there was no search.

        Args:
            judged: The audit's test of scores, with the name of their arm.
            by_pixels: Draws copies that were altered on purpose, watched as `control`, and judges them by pixels.
        """
        if self.space is None:
            return None
        pixels = by_pixels()
        memories = {arm: judged(looks.scores, arm) for arm, looks in self.looks.items()}
        return Altered(memories["audited"], memories["control"], pixels, memories.get("negative"), self.space)


def watched(name: Literal["none"] | SpaceName, search: Search, context: AuditContext) -> Watch:
    """Return the search for altered copies in the space of a plan."""
    if name == "none":
        return Watch(None, "", search)
    try:
        return Watch(space_named(name, context), "", search)
    except NotRunError as error:
        return Watch(None, error.why, search)
