"""Plan files: YAML in, a resolved `Scenario` out; nothing reads YAML after that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from fedassay.backbones.preprocessing import Interpolation, Preprocessing
from fedassay.data.evaluation import Evaluate
from fedassay.data.presence import Uncertain
from fedassay.data.roles import Role
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import ThreatModel
from fedassay.plan.resources import Resources
from fedassay.similarity.spec import LpipsSpec
from fedassay.support import limits, yaml_text
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.errors import PlanError
from fedassay.support.text import cut, shown
from fedassay.support.types import Extended, Parameters
from fedassay.support.validation import explain

if TYPE_CHECKING:
    from fedassay.contracts.attack import Attack
    from fedassay.contracts.audit import Audit
    from fedassay.contracts.component import Configured
    from fedassay.contracts.method import Method

STANDARD = "standard"
"""In `attacks` and `audits`: all that can be run on the plan, with their defaults."""
RESERVED = ("label", "epsilon", "delta", "adjacency", "unit", "max_records")
DELTA_WORDS = ("plan", "per_class")
"""A `delta` of an entry that is a word says how the method chooses it, and is a parameter of the method."""

Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_LENGTH)]
Epsilon = Annotated[Extended, Field(gt=0)]
Mean = Annotated[float, Field(allow_inf_nan=False)]
Deviation = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Delta = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class Split(Parameters):
    """Shares of the records for each role; the rest is unused."""

    private: float = Field(gt=0, le=1)
    """The clients' records: what audits are about."""
    attacker: float = Field(default=0.0, ge=0, le=1)
    """The adversary's own records, of the same distribution; attacks that train need some."""
    public: float = Field(default=0.0, ge=0, le=1)
    """Records known to everybody; `small_cnn` is trained on them."""
    test: float | None = Field(default=None, ge=0, le=1)
    """Records that accuracy is measured on; `null` where the data set has a test set of its own."""
    control: float | None = Field(default=None, ge=0, le=1)
    """Records that audits make their positive controls of; they are in no other role. `null`: a tenth of the other
    shares, from what these leave over and, where that is too little, from every one of them alike."""

    def check(self, *, official: bool) -> None:
        """Refuse shares of more than there is.

        Args:
            official: The private share is one of another set, the official test set.

        Raises:
            ValueError: They sum to more than 1.
        """
        total = self._given(self.test, official) + (self.control or 0.0)
        if total > 1 + 1e-9:
            which = "the shares but private" if official else "the shares"
            raise ValueError(f"{which} sum to {total:.4g}; they must sum to at most 1")

    def _given(self, test: float | None, official: bool) -> float:
        return (0.0 if official else self.private) + self.attacker + self.public + (test or 0.0)

    def shares(self, *, test_set: bool, official: bool = False) -> dict[Role, float]:
        """The share of every role, of the training records.

        Args:
            test_set: The data set has a test set of its own, to which the test share gives way.
            official: The private share is one of the official test set; the test role has none of that then.
        """
        test = None if test_set and not official else self.test
        given = self._given(test, official)
        control = given / 10 if self.control is None else self.control
        kept = min(1.0, (1 - control) / given) if given else 1.0
        shares: dict[Role, float] = {
            "private": self.private if official else kept * self.private,
            "attacker": kept * self.attacker,
            "public": kept * self.public,
            "control": control,
        }
        return shares if test is None else {**shares, "test": kept * test}


class ImageSource(Parameters):
    """Source of images."""

    name: str
    """The data set, as `fedassay list datasets` names it."""
    root: str | None = None
    """Folder of published data sets, beside the plan if relative; `null`: `FEDASSAY_DATA`, and where that is not
    set `fedassay-data` in your cache folder."""
    download: bool = True
    """Fetch published files that are not in that folder, once, and check their digests; `false`: never, as
    `--offline` does for everything."""
    path: str | None = None
    """File or folder of your own images (`npz`, `image_folder`)."""
    limit: int | None = Field(default=None, gt=0, le=limits.RECORDS)
    """Keep at most so many records of the training and of the test set each, drawn at random by class."""
    size: int | None = Field(default=None, gt=0, le=limits.IMAGE_SIDE)
    """Resize all images to a square of this side, in pixels; `null`: as they are."""
    bits: int | None = Field(default=None, ge=8, le=16)
    """Bits that values of an `image_folder`'s images have that declare more: 12 where twelve bits are stored as
    sixteen; the highest 8 are kept. `null`: what each file declares."""
    frames: Literal["first", "each"] | None = None
    """Pictures taken from an `image_folder`'s files of several (pages, frames, slices). `first`: the first of
    each. `each`: all, one by one, and without `groups` those of a file are one person's. `null`: such files are
    refused."""
    labels: str | None = None
    """Table of the labels of an `image_folder` (CSV, .xlsx, JSON), in the folder or beside the plan; `null`: the
    one that is there, or else folders."""
    layout: str | None = None
    """Kind of each level of folders of an `image_folder`, such as `site/class/*/image`: `class`, `person`, `site`,
    `split` or `*`, or a pattern of names, such as `{class}_#` with a number for `#`; `null`: found from the
    names."""
    file_column: str | None = None
    """Column of that table that names the files, or a pattern of their names with columns in braces; `null`: the
    one that does."""
    label_column: str | int | tuple[str, ...] | None = None
    """Column of that table that holds the labels, or several columns with exactly one 1 in each row; or number of
    a column of an `npz`'s labels where a record has several (the first is 0); `null`: the only one, or that called
    `label`."""
    label: str | None = None
    """Label that makes the class by its presence, where a record may have several labels: a column of 0, 1, -1 and
    blanks, or one of those joined by `|` in `label_column`; `null`: a record has one label."""
    uncertain: Uncertain | None = None
    """Treatment of records with a `label` of -1 or blank: `drop`, `positive`, `negative`; `null`: refused."""
    incomplete: Literal["refuse", "leave_out"] = "refuse"
    """Images without a row or a label, rows without an image, and pictures that cannot be read: `refuse`, or
    `leave_out`, which the account of the data then counts."""
    sites: str | None = None
    """Column of that table that says where each record is from, or `InstitutionName` of DICOM headers; `null`:
    folders with names of sites."""
    groups: Name | Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Person of each record: an array of an `npz`, a column of that table or several together (`[site, patient]`),
    a pattern on the end of the paths of an `image_folder` (`{person}_*`), `PatientID` of DICOM headers, or a name
    that the data set knows. Roles and clients then never share a person, and audits count persons. `null`: each
    record is taken to be of a person of its own, or of its folder's."""

    attributes: tuple[Name, ...] = ()
    """Sensitive attributes that `attribute_inference` asks about: arrays of an `npz` or of `features` with one
    value a record, or `label`, the class itself. No method reads the arrays."""
    classes: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Names of the classes that are kept, as the data set has them; `null`: all."""
    domains: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Names of the domains that are kept, for data with domains; `null`: all. They keep the data set's order."""
    features: str | None = None
    """An .npz of features that were computed elsewhere, one row a record in the data set's order, which stand in
    place of `backbone`; `null`: the backbone computes them."""


class AttackerData(ImageSource):
    """`data.attacker_from`: an attacker with images from another data set (out of distribution)."""


class DataSpec(ImageSource):
    """The `data` section."""

    roles: Literal["drawn", "official"] = "drawn"
    """`drawn`: the clients, the adversary and the public get shares of the training set. `official`: the clients
    get the data set's own test set, everybody else shares of its training set."""
    split: Split = Split(private=0.4, attacker=0.3, public=0.1, test=0.2)
    """Shares of the records by who holds them; with `roles: official`, `private` is a share of the test set."""
    test_domain: str | None = None
    """Leave this domain out of training and make it the test set; for data with domains."""
    attacker_from: AttackerData | None = None
    """Take the adversary's images from another data set; `null`: from `split.attacker`."""

    @field_validator("split")
    @classmethod
    def _at_most_one(cls, split: Split, info: ValidationInfo) -> Split:
        split.check(official=info.data.get("roles") == "official")
        return split


class ClientsSpec(Parameters):
    """The `clients` section."""

    count: int = Field(default=5, ge=1, le=limits.CLIENTS)
    """Number of clients."""
    partition: Literal["iid", "dirichlet", "disjoint_labels", "dominant_classes", "domains"] = "dirichlet"
    """Difference of labels between clients. `iid`: not at all. `dirichlet`: shares of each class drawn with
    concentration `alpha`. `disjoint_labels`: every class at one client. `dominant_classes`: most records of a
    client are of a few classes. `domains`: no client sees two domains, unless there are fewer clients than
    domains."""
    alpha: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    """Concentration of `dirichlet`; the smaller, the fewer classes a client holds."""
    min_records: int = Field(default=1, ge=0, le=limits.RECORDS)
    """Fewest records of a client; `dirichlet` sees to it, others are refused if they miss it."""
    dominant: int = Field(default=2, ge=1, le=limits.CLASSES)
    """Number of classes that dominate at a client, for `dominant_classes`."""
    uniform_share: float = Field(default=0.2, ge=0, le=1)
    """Share of a client's records drawn from all classes, for `dominant_classes`."""
    evaluate: Evaluate = "test"
    """Records that accuracy is measured on. `test`: the test role's. `own`: all records of the clients, which is
    training accuracy. `held_out`: a share of every client's own records, which no method sees."""
    held_out: float = Field(default=0.2, gt=0, lt=1)
    """Share of every client's records that `evaluate: held_out` keeps back."""
    shared_persons: Literal["refuse", "one_client"] = "refuse"
    """Of a person (`data.groups`) whom `disjoint_labels` or `domains` would put at several clients. `refuse`: an
    error. `one_client`: it stays at the one with most of its records, and its others are left out."""


class BackboneSpec(Parameters):
    """The `backbone` section."""

    name: str = "small_cnn"
    """The network, as `fedassay list backbones` names it."""
    weights: str | None = None
    """`public`: trained on the public split. `random`. `imagenet_v1` or `imagenet_v2`: torchvision's
    `IMAGENET1K_V1` or `IMAGENET1K_V2`. `imagenet`: the one that the installed torchvision takes for the best. Or
    the path of a file. `null`: the network's own choice. Not every network takes every one."""
    input_size: int | None = Field(default=None, ge=1, le=limits.IMAGE_SIDE)
    """Side in pixels that images are resized to; with `crop`, their shorter side; `null`: the network's own."""
    crop: int | None = Field(default=None, ge=1, le=limits.IMAGE_SIDE)
    """Side in pixels of the square that is cut out of the middle after resizing; `null`: the network's own, which
    for most is none: images are resized to squares."""
    interpolation: Interpolation | None = None
    """Interpolation of resized images; `null`: the network's own, which for most is `bilinear`."""
    mean: Mean | tuple[Mean, ...] | None = None
    """Subtracted from images in [0, 1]: one number a channel (red, green, blue), or one for all; `null`, like
    `std`: what the network was trained with."""
    std: Deviation | tuple[Deviation, ...] | None = None
    """Divided by after that; given with `mean`."""

    def preprocessing(self) -> Preprocessing:
        """Preprocessing from the section's keys beside `input_size`."""
        mean, std = ((value,) if isinstance(value, float) else value for value in (self.mean, self.std))
        return Preprocessing(mean, std, self.crop, self.interpolation)


class SimilaritySpec(Parameters):
    """The `similarity` section: PSNR and SSIM are always measured."""

    lpips: LpipsSpec | Literal["auto"] | None = "auto"
    """Measure LPIPS as well. `auto`: by SqueezeNet on its official trunk, 5 MB, where that is in torch's hub
    folder or can be fetched; a network of a name, on its official trunk or a file of yours; or `null`: PSNR and
    SSIM only."""


class PrivacySpec(Parameters):
    """The `privacy` section; method entries may override each key."""

    epsilon: Epsilon | tuple[Epsilon, ...] = math.inf
    """Every method is run once for each; `.inf`: no noise and no claim."""
    delta: Delta | tuple[Delta, ...] = 1e-5
    """Every finite epsilon is run once for each; far below one over the records of the largest client."""
    adjacency: Adjacency | None = None
    """Relation of neighbouring data sets: the change of one record; `null`: the method's own choice."""
    unit: Unit = "record"
    """Unit of privacy: one `record`; one `person`, with all of its records at a client (`data.groups`); or one
    `client`, with all records that it holds. A person or a client adds the mean of its clipped records, and DP-SGD
    clips its gradient as a whole."""
    max_records: int | None = Field(default=None, ge=1, le=limits.RECORDS)
    """The most records of one person or client that statistics are taken of, drawn at random; `null`: all. What a
    person or a client gives away is bounded with any."""


class KnowledgeSpec(Parameters):
    """The `knowledge` section: what the adversary has beside its own records and what it sees."""

    gallery: str | None = Field(default=None, min_length=1)
    """Candidates who may be in the messages: a folder of images with a folder for each class, or an .npz of images
    `x` and labels `y`. Membership is asked of the candidates that clients hold, and of those that no client holds.
    `null`: of the clients' records among as many that no client holds."""


class Plan(Parameters):
    """A plan file. Unknown keys are refused by name."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=limits.FILE_NAME)
    """Names the run; letters, digits, points, underscores and hyphens."""
    seeds: tuple[int | None, ...] = Field(default=(0,), min_length=1)
    """One run of every method for each; a seed drives split, partition, initialisation and noise. `null`: the
    noise is drawn from the system, and cannot be drawn again. A single seed needs no list."""
    data: DataSpec
    """The images, and who holds which."""
    clients: ClientsSpec = ClientsSpec()
    """Number of clients, and the partition of the private records over them."""
    backbone: BackboneSpec = BackboneSpec()
    """The frozen network that makes features of images."""
    similarity: SimilaritySpec = SimilaritySpec()
    """Comparison of images, beside PSNR and SSIM."""
    privacy: PrivacySpec = PrivacySpec()
    """Target of differential privacy; an entry of `methods` may state its own."""
    threat: ThreatModel = ThreatModel()
    """Threat model: view and knowledge of the adversary."""
    knowledge: KnowledgeSpec = KnowledgeSpec()
    """Knowledge of the adversary beside its own records and its view."""
    methods: tuple[dict[str, dict[str, Any]], ...] = Field(min_length=1)
    """Methods: each makes the clients' messages, and the server learns from them; run one by one."""
    attacks: tuple[dict[str, dict[str, Any]], ...] = ()
    """Run in this order on every method; later ones know what earlier ones recovered. `standard`: every installed
    attack that the plan has what it needs for, with defaults; as the first of a list, those after it come in the
    place of the same name, or are added."""
    audits: tuple[dict[str, dict[str, Any]], ...] = ()
    """Audits of the results; one that judges results of attacks needs an attack that gives such results.
    `standard`: every installed audit that has an attack of the plan to judge, or needs none; in a list as in
    `attacks`."""
    policy: Literal["strict", "demonstration", "research"] | None = None
    """The shipped policy that the answer is by where no other is named. `null`: `strict`. `demonstration` is for
    embedded data, which are too small for it: it moves limits of detection alone."""
    resources: Resources = Resources()
    """Resources that a cell may take of the machine, or of a cluster's machines."""
    scaled: float | None = Field(default=None, gt=0, lt=1, allow_inf_nan=False)
    """The factor by which `--scale` has made the plan smaller; it changes nothing more. `null`: it is as
    written."""

    def __hash__(self) -> int:
        """A key of caches. Equality also looks at the entries, which are dictionaries and have no hash."""
        return hash((self.name, self.seeds, self.data, self.clients, self.backbone, self.privacy, self.threat))

    @model_validator(mode="before")
    @classmethod
    def _normalise(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        out = dict(given)
        for key in ("attacks", "audits"):
            if out.get(key) == STANDARD:
                out[key] = [STANDARD]
        for key in ("methods", "attacks", "audits"):
            if isinstance(out.get(key), Sequence) and not isinstance(out[key], str):
                out[key] = [_entry(item, f"{key}.{i}") for i, item in enumerate(out[key])]
        if "seeds" in out and (out["seeds"] is None or isinstance(out["seeds"], int)):
            out["seeds"] = [out["seeds"]]
        return out


def _entry(item: Any, where: str) -> Any:
    """`name`, `{name: null}` and `{name: {...}}` are the same entry."""
    if isinstance(item, str):
        return {item: {}}
    if isinstance(item, Mapping) and len(item) == 1:
        name, params = next(iter(item.items()))
        return {name: {} if params is None else params}
    given = f"the keys {', '.join(map(str, item))}" if isinstance(item, Mapping) and item else shown(item)
    raise ValueError(f"{where}: given {cut(given, 200)}; allowed: one name, its parameters indented below it")


_B_co = TypeVar("_B_co", bound="Configured", covariant=True)


@dataclass(frozen=True)
class Component(Generic[_B_co]):
    """A resolved entry of `methods`, `attacks` or `audits`.

    Attributes:
        name: Registered name.
        label: Unique among its kind.
        build: The registered object with its parameters.
        given: The parameters as written, reserved keys included.
    """

    name: str
    label: str
    build: _B_co
    given: dict[str, Any]

    @property
    def params(self) -> dict[str, Any]:
        """The parameters used, defaults filled in."""
        return self.build.model_dump(mode="json")


@dataclass(frozen=True)
class Cell:
    """One method entry at one epsilon, delta and seed.

    Attributes:
        key: Names the cell and its files; no other cell of the plan has it (`fedassay.plan.cell_keys`).
        seed_index: Place of the seed in the plan, which identifies null seeds.
    """

    key: str
    method: Component[Method]
    privacy: PrivacyTarget
    seed: int | None
    seed_index: int


@dataclass(frozen=True)
class Scenario:
    """The resolved plan.

    Attributes:
        plan: The validated plan.
        base: Folder that relative paths are looked up beside.
        methods: In plan order.
        attacks: In plan order, which is the order they run in.
        audits: In plan order.
        cells: Every method entry x epsilon x delta x seed.
        warnings: Remarks on the plan, which can be run all the same; printed, and noted in every cell.
        source: The plan file and the lines of its method entries; empty where the plan came from no file.
    """

    plan: Plan
    base: Path
    methods: tuple[Component[Method], ...]
    attacks: tuple[Component[Attack], ...]
    audits: tuple[Component[Audit], ...]
    cells: tuple[Cell, ...]
    warnings: tuple[str, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict)

    def resolved(self) -> dict[str, Any]:
        """The plan with every default filled in, as it goes into the record."""
        out = self.plan.model_dump(mode="json")
        if self.plan.data.features is not None:
            del out["backbone"]  # the features stand in its place
        for key, parts in (("methods", self.methods), ("attacks", self.attacks), ("audits", self.audits)):
            out[key] = [
                {
                    part.name: {
                        **part.params,
                        **{name: part.given[name] for name in RESERVED if name in part.given},
                    }
                }
                for part in parts
            ]
        return out


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping, refusing repeated keys.

    Raises:
        PlanError: The file is missing, empty, not YAML or not a mapping.
    """
    content = yaml_text.read_yaml(path)
    if not isinstance(content, dict):
        found = "nothing" if content is None else type(content).__name__
        raise PlanError(f"{path}: a mapping of keys is expected at the top, found {found}")
    return content


def override(content: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Apply `--set a.b=c` assignments; list positions are numbers, values are YAML.

    Raises:
        PlanError: No `=`, or the path runs through something that is neither mapping nor list.
    """
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise PlanError(f"--set {assignment}: allowed: KEY=VALUE, such as methods.0.fedpft.components=5")
        # One value holds no anchor that an alias could stand for: `*/class/image` is a text.
        value = text if text.startswith("*") else yaml_text.parse_yaml(text, f"--set {assignment}")
        *parents, last = path.split(".")
        place: Any = content
        for part in parents:
            if isinstance(place, dict) and place.get(part) is None:
                place[part] = {}
            place = _step(place, part, assignment)
        if isinstance(place, list):
            _step(place, last, assignment)
            place[int(last)] = value
        elif isinstance(place, dict):
            place[last] = value
        else:
            raise PlanError(f"--set {assignment}: nothing can be set inside {shown(place)}")
    return content


def _step(place: Any, part: str, assignment: str) -> Any:
    if isinstance(place, dict):
        return place[part]
    if isinstance(place, list):
        if not part.isdigit() or int(part) >= len(place):
            raise PlanError(f"--set {assignment}: {part!r} is no position; allowed: 0 to {len(place) - 1}")
        return place[int(part)]
    raise PlanError(f"--set {assignment}: nothing can be set inside {shown(place)}")


def parse_data(section: Mapping[str, Any]) -> DataSpec:
    """Validate a section `data`.

    Raises:
        PlanError: As `parse_plan`.
    """
    try:
        return DataSpec.model_validate(section)
    except ValidationError as error:
        raise PlanError(explain(error, DataSpec, "data").replace(": ", ".", 1)) from None


def parse_plan(content: Mapping[str, Any], where: str) -> Plan:
    """Validate the contents of a plan file.

    Raises:
        PlanError: The first thing that is wrong: the key, what was given, what is allowed.
    """
    try:
        return Plan.model_validate(content)
    except ValidationError as error:
        raise PlanError(explain(error, Plan, where)) from None
