"""Inputs and results of a method."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np

from fedassay.contracts.component import Configured
from fedassay.contracts.facts import MethodFacts
from fedassay.data.records import Records
from fedassay.exchange.models import Generator
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.store import Spool
from fedassay.exchange.transcript import Transcript
from fedassay.privacy.tape import Key, NoiseMechanism
from fedassay.privacy.units import contribution_weights, members, require_persons
from fedassay.support.errors import DataError, PlanError
from fedassay.support.hashing import digest_arrays
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Ints, Matrix

if TYPE_CHECKING:
    from fedassay.backbones.base import Backbone
    from fedassay.exchange.blocks import Enters
    from fedassay.exchange.models import ScoringModel
    from fedassay.heads.estimating import Estimator
    from fedassay.privacy.reruns import Experiment


@dataclass(frozen=True)
class MethodInput:
    """One cell's work for a method.

    Attributes:
        clients: Each client's own records; names are `client/0` onwards, then `colluder/0` onwards for
            those that collude with the server.
        test: Records that accuracy is measured on.
        public: Public records, or None.
        classes: Number of classes C.
        backbone: The frozen feature extractor f.
        privacy: The guarantee that the plan asks for.
        seeds: Random streams of this cell. Used directly, they serve public randomness: initial weights, shuffles.
            Noise comes from `noise` and hidden coins from `hidden_randomness`; the three are never mixed.
        device: `cpu` or `cuda`.
        progress: The display that long steps report to.
        scratch: A folder for checkpoints of this cell, kept until the cell is done; None: keep none.
        spool: Store of clients' messages until they are read.
        parameters: The method's resolved parameters, in any one notation: runs that differ in them share no noise.
        simulated: Whether this is a rerun by an audit or an attack, on records and with seeds of its choice. Its
            noise then follows from the seeds alone, so that simulations on neighbours can share it.
        shadow: Whether this is a shadow run of an attack, to learn the distribution of releases: its noise need
            only have the right law. A run that an audit measures is never a shadow.
        other: Name of other hidden coins; empty: the cell's own.
        adversary: The server's own records, where it is malicious and chooses its broadcast so as to separate
            records; None: it is honest.
    """

    clients: tuple[Records, ...]
    test: Records
    public: Records | None
    classes: int
    backbone: Backbone
    privacy: PrivacyTarget
    seeds: Seeds
    device: str
    progress: Progress
    scratch: Path | None = None
    spool: Spool = field(default_factory=Spool)
    parameters: str = ""
    simulated: bool = False
    shadow: bool = False
    other: str = ""
    adversary: Records | None = None

    @cached_property
    def noise(self) -> Seeds:
        """Root of the noise streams: of this cell, these records, this privacy and these parameters.

        Two runs that differ in any of them share no noise, so that their messages cannot be subtracted. Only the
        seed of a `simulated` run, which is never published, is independent of the records.
        """
        if self.simulated:
            return self.seeds.child("simulated noise")
        digest = hashlib.sha256()
        public = () if self.public is None else (self.public,)
        by_person = self.privacy.unit == "person"
        for records in (*self.clients, *public):
            groups = {} if records.groups is None or not by_person else {"groups": records.groups}
            content = digest_arrays({"images": records.images, "labels": records.labels, **groups})
            digest.update(f"{len(records.name)}:{records.name}:{content};".encode())
        asked = self.privacy.model_dump_json(exclude_defaults=True)
        fixed = (self.parameters, asked, self.backbone.fingerprint, self.classes)
        return self.seeds.child("noise", digest.hexdigest(), *fixed)

    @cached_property
    def hidden_randomness(self) -> Seeds:
        """Root of hidden coins (who is sampled): no data in it, for neighbours toss the same coins.

        A coin's path names its record by an identity that neighbours keep: the record's position.
        """
        return self.seeds.child("coins", self.other) if self.other else self.seeds.child("coins")

    @cached_property
    def _apart(self) -> bool:
        """Whether persons are known, and at one client each; simulated runs of an audit are not checked.

        Raises:
            DataError: They are unknown, or at several clients.
        """
        if not self.simulated:
            require_persons([each.name for each in self.clients], [each.groups for each in self.clients])
        return True

    def units(self, client: Records) -> Ints | None:
        """Return the person or client of each record, shape (n,); None where the unit of privacy is the record.

        Raises:
            DataError: The unit is the person, and persons are not named, or some are at two clients.
        """
        if self.privacy.unit == "record":
            return None
        if self.privacy.unit == "client":
            return np.zeros(len(client), np.int64)
        return client.groups if self._apart and client.groups is not None else np.arange(len(client))

    def weights(self, client: Records) -> Matrix | None:
        """Weight of each record of a client in the sums of a private run, shape (n,).

        With them a person, or the client, adds the mean of at most `privacy.max_records` of its records; see
        `fedassay.privacy.units`. None: each record counts as it is.

        Raises:
            DataError: As `units`.
        """
        groups = self.units(client) if self.privacy.private else None
        if groups is None:
            return None
        # Public coins: the sensitivity holds whichever records are drawn, and a replay draws the same ones.
        return contribution_weights(groups, self.privacy.max_records, self.seeds.child("units", client.name))

    def persons(self, client: Records) -> Ints | None:
        """Places of each person's records that private training takes, (U, m), -1 where a person has fewer than m.

        None where records, or clients, are the unit of privacy, or there is none.

        Raises:
            DataError: As `units`.
        """
        weights = self.weights(client) if self.privacy.unit == "person" else None
        groups = None if weights is None else self.units(client)
        if weights is None or groups is None:
            return None
        own = [places[weights[places] > 0] for places in members(groups)]
        found = np.full((len(own), max(map(len, own), default=1)), -1, np.int64)
        for row, places in enumerate(own):
            found[row, : len(places)] = places
        return found

    def require_records(self, method: str) -> None:
        """Refuse work without any record.

        Raises:
            DataError: No client has one.
        """
        if not any(len(client) for client in self.clients):
            raise DataError(f"{method}: no client has any record")

    def require_public(self, method: str, use: str) -> Records:
        """The public records, for a method that needs some.

        Raises:
            PlanError: There are none.
        """
        if self.public is None or not len(self.public):
            raise PlanError(f"{method}: no public records {use}; allowed: data.split.public above 0")
        return self.public

    def replayed(self, other: str) -> MethodInput:
        """Return the same work for a replay: with new noise, and with new coins where `other` is not empty.

        The noise has another root, so that noise from another source is detected.
        """
        parameters = f"{self.parameters}:replayed"
        return replace(self, scratch=None, simulated=False, other=other, parameters=parameters)

    def mechanism(self, sender: str, number: int, name: str) -> NoiseMechanism:
        """The noise mechanism of one release.

        Args:
            sender: The client.
            number: Global round.
            name: Group of the release, or the message's field that it is for; see `fedassay.privacy.tape`.
        """
        return NoiseMechanism(self.noise, Key(sender, number, name))


class Model(Protocol):
    """A trained global model."""

    def predict(self, records: Records) -> Ints:
        """Predicted classes, shape (n,)."""
        ...


@runtime_checkable
class OnFeatures(Protocol):
    """A model of the backbone's features, such as `fedassay.heads.linear.FeatureModel`.

    Its method's messages are computed from these, so audits compare it with those of the true records. Models
    without the attribute are assumed to be networks of their own.
    """

    @property
    def transform(self) -> Callable[[Floats], Floats] | None:
        """The map applied to features (n, d) before all other computation; None: the identity."""
        ...


@dataclass(frozen=True, eq=False)
class Retrained:
    """A noised statistic that depends on a client's records through a network trained on them as well.

    Its worst-case neighbours are not known in closed form: an audit must search for them.

    Attributes:
        experiment: From a client's position in the task, and two neighbouring sets of its records (the second one
            holds the record in question), to the mechanism on these.
        sensitivity: The sensitivity that the noise is calibrated to.
        batch: Records of a minibatch: one record more than a multiple of it adds a step of training.
        condition: The condition under which the experiment describes the real mechanism.
    """

    experiment: Callable[[int, Records, Records], Experiment]
    sensitivity: float
    batch: int
    condition: str


@dataclass(frozen=True)
class Outcome:
    """The results of a method.

    Attributes:
        transcript: All messages.
        model: The global model, or None where the method trains none.
        utility: Figures besides test accuracy (personalized accuracy, rounds to target, ...).
        communication: The paper's closed forms, by name, in bytes or parameters (named so).
        mechanisms: The noised statistics in use, by name, each on its worst-case neighbours, so that an audit can
            rerun them.
        retrained: Those that depend on records through training, by name.
        generators: By sender, for methods that send a generative model.
        networks: Classifiers with parameters that were sent whole, by sender and round of the message that carries
            them.
        notes: Fallbacks taken, and everything else that the verdict must name.
        enters: Way in which a record enters the messages; None: as the kinds of their fields say.
        estimators: The equations that a head in a message solves, by sender and round of that message: for the
            records of the client that sends it, or of all clients where the server does. Heads that solve no
            equations of these records have none.
        stays: Results that stay at the clients: names of figures of `utility` that are measured on their records,
            and `model` where it is made of networks of their own. No claim covers these; all else must follow from
            the messages.
    """

    transcript: Transcript
    model: Model | None
    utility: Mapping[str, float] = field(default_factory=dict)
    communication: Mapping[str, float] = field(default_factory=dict)
    mechanisms: Mapping[str, Experiment] = field(default_factory=dict)
    retrained: Mapping[str, Retrained] = field(default_factory=dict)
    generators: Mapping[str, Generator] = field(default_factory=dict)
    networks: Mapping[tuple[str, int], ScoringModel] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    enters: Enters | None = None
    estimators: Mapping[tuple[str, int], Estimator] = field(default_factory=dict)
    stays: frozenset[str] = frozenset()


@runtime_checkable
class HasLeakiestForm(Protocol):
    """A method with a special form that leaks records most.

    Sums, means and mixtures of clients with one record a class reveal these records exactly; such a method needs
    no special form. A method that sends weights or a generator reveals the records that it was overfitted to.
    """

    def leakiest_form(self) -> Method:
        """The same method, of the same architecture, trained until it memorizes a few records."""
        ...


@runtime_checkable
class HasNoiselessForm(Protocol):
    """A method that sends something else under a claim than without one, beside the noise.

    Controls of a private run are its release without noise, so that they show what an attack reads of it.
    """

    def noiseless_form(self) -> Method:
        """Return the method without privacy that sends the messages of its private run, without noise."""
        ...


class Method(Configured, Protocol):
    """A one-shot (or few-round) federated method; its fields are its plan parameters."""

    facts: ClassVar[MethodFacts]

    def run(self, task: MethodInput) -> Outcome:
        """Fit each client on its own records, send, aggregate, and return the model."""
        ...


def nonprivate_form(method: Method, private: bool) -> Method:
    """Return the method for controls: without privacy, in its leakiest form.

    Args:
        method: The audited method.
        private: Whether its audited run is private: the control then sends the same kinds of message.
    """
    if private and isinstance(method, HasNoiselessForm):
        method = method.noiseless_form()
    return method.leakiest_form() if isinstance(method, HasLeakiestForm) else method
