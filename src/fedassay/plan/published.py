"""Published files that a plan needs: the missing ones are named before anything is fetched or run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedassay.contracts.metrics import LPIPS
from fedassay.plan.schema import ImageSource, Plan, Scenario
from fedassay.similarity.spec import TRUNKS, chosen
from fedassay.support.download import OFFLINE, is_offline
from fedassay.support.errors import DataError
from fedassay.support.paths import data_root, root_in_words
from fedassay.support.registry import entries, lookup, size_of


@dataclass(frozen=True)
class Missing:
    """A published file that is not there.

    Attributes:
        key: The plan's key for it.
        what: The data set or the weights, by name.
        file: Its name.
        url: Address where it is published.
        where: Place where it is looked for, in words.
        never: Reason why it may not be fetched; empty where it may.
    """

    key: str
    what: str
    file: str
    url: str
    where: str
    never: str

    @property
    def refusal(self) -> str:
        """Sentence on the remedy where it may not be fetched."""
        return (
            f"{self.key}: {self.what} is not in {self.where}, and {self.never} forbids to fetch it; "
            f"allow that, or place {self.file} from {self.url} there"
        )

    @property
    def remark(self) -> str:
        """Sentence on the download by the first run."""
        return f"{self.key}: the first run fetches {self.file} of {self.what} from {self.url} into {self.where}"


def check_published(plan: Plan, base: Path) -> list[Missing]:
    """The published files that a run would have to fetch.

    Raises:
        DataError: One of them may not be fetched; the message says where to get it.
    """
    found = missing_files(plan, base)
    if refused := next((each for each in found if each.never), None):
        raise DataError(refused.refusal)
    return found


def missing_files(plan: Plan, base: Path) -> list[Missing]:
    """The published files that are not there: those of data sets first, then those of weights."""
    sources = {"data": plan.data, "data.attacker_from": plan.data.attacker_from}
    found = [each for key, source in sources.items() if source is not None for each in _data(key, source, base)]
    return found if plan.data.features is not None else [*found, *_weights(plan)]


def measures_lpips(scenario: Scenario) -> bool:
    """Whether a run loads a network: an audit compares images by LPIPS, or the plan names a file to be checked."""
    spec = chosen(scenario.plan.similarity.lpips)
    if spec is not None and spec.trunk is not None:
        return True
    return any(metric.name == LPIPS.name for audit in scenario.audits for metric in audit.build.facts.metrics)


def trunk_remarks(scenario: Scenario) -> list[str]:
    """Remarks on LPIPS where its official trunk is not there: a run continues without it."""
    from fedassay.support.weights import hub_path, published_digits

    spec = chosen(scenario.plan.similarity.lpips)
    if spec is None or spec.trunk is not None or not measures_lpips(scenario):
        return []
    url, size = TRUNKS[spec.net]
    path = hub_path(url)
    if path.exists():
        return []
    if is_offline():
        return [
            f"similarity.lpips: LPIPS will not be measured: {path.name} is not in {_HUB}, and {_never()} forbids "
            f"to fetch it; allow that, or place the file from {url} there"
        ]
    return [
        f"similarity.lpips: the first run fetches {path.name} ({size:,.0f} MB, SHA-256 {published_digits(url)}...)"
        f" from {url} into {_HUB}, or goes on without LPIPS (null: PSNR and SSIM only)"
    ]


def files_of(plan: Plan) -> list[Missing] | None:
    """All published files that a plan reads, as if none were there; None where a folder has to be unpacked."""
    nowhere = Path("/nonexistent")
    files: list[Missing] = []
    for source in (plan.data, *([plan.data.attacker_from] if plan.data.attacker_from else [])):
        found = _data("data", source.model_copy(update={"root": str(nowhere)}), nowhere)
        if not found and callable(size_of("dataset", source.name)):
            return None
        files += found
    return [*files, *_weights(plan, there=False)]


def _data(key: str, source: ImageSource, base: Path) -> list[Missing]:
    if source.path is not None or source.name not in entries("dataset"):
        return []
    # Files of data sets are listed by torchvision, which takes a second to import.
    from fedassay.data.download import missing

    absent = missing(lookup("dataset", source.name), data_root(source.root, base))
    never = _never() or ("" if source.download else f"{key}.download: false")
    where = root_in_words(source.root, base)
    return [Missing(key, source.name, file.name, file.urls[0], where, never) for file in absent]


def _weights(plan: Plan, *, there: bool = True) -> list[Missing]:
    from fedassay.backbones.weights import published_url
    from fedassay.support.weights import hub_path

    url = published_url(plan.backbone.name, plan.backbone.weights)
    if url is None or (there and hub_path(url).exists()):
        return []
    path = hub_path(url)
    what = f"{plan.backbone.name} with weights {plan.backbone.weights or 'imagenet'}"
    return [Missing("backbone", what, path.name, url, _HUB, _never())]


_HUB = "$TORCH_HOME/hub/checkpoints (by default ~/.cache/torch/hub/checkpoints)"


def _never() -> str:
    return f"--offline ({OFFLINE})" if is_offline() else ""
