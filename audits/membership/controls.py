"""Releases that give membership away, one for each thing that the attack looks at, and their shadows.

- `messages`: the features themselves.
- `model`: a classifier that has memorized its records under labels drawn at random, which nothing but the records
  themselves can tell: kernel interpolation with a bandwidth below the distance between records.
- `generator`: a diffusion model that has memorized its records: the best denoiser of their empirical
  distribution, in closed form.

They are attacked like any release, with shadow releases of their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import softmax

from fedassay.audits.simulation import raw_view
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.membership import MembershipGame
from fedassay.data.groups import units_of
from fedassay.data.records import Records, joined
from fedassay.exchange.models import Generator
from fedassay.exchange.view import View
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools, Images, Matrix

WORDS = {
    "messages": "the same clients' features, sent as they are",
    "model": "classifiers that memorized the same clients' images under random labels",
    "generator": "diffusion models that memorized the same clients' images",
}
CONTROL_SHADOWS = 4
"""Shadow releases of a control, the fewest that tests take, unless so many are asked for that attacks estimate
more from them: few are enough to find a leak on purpose."""
_SURE = 10.0
"""Logit of a memorized label."""
_RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Memorizer:
    """Kernel interpolation of labels over pixels: a `fedassay.exchange.models.ScoringModel`.

    Attributes:
        kept: Pixels of the records, shape (n, D).
        weights: Shape (n, C).
        bandwidth: Of the Gaussian kernel.
    """

    kept: Matrix
    weights: Matrix
    bandwidth: float

    def scores(self, records: Records) -> Matrix:
        """Class scores (n, C): the memorized label's is high, and all are equal far from any record."""
        return _SURE * _kernel(_pixels(records.images), self.kept, self.bandwidth) @ self.weights


def memorize(records: Records, classes: int) -> Memorizer:
    """Interpolate the labels of records; without any, all scores are equal."""
    kept = _pixels(records.images)
    if len(kept) < 2:
        one_hot = (records.labels[:, None] == np.arange(classes)).astype(np.float64)
        return Memorizer(kept, one_hot, 1.0)
    distances = cdist(kept, kept)
    np.fill_diagonal(distances, np.inf)
    bandwidth = max(float(np.median(distances.min(axis=1))) / 3, 1e-6)
    one_hot = (records.labels[:, None] == np.arange(classes)) - 1 / classes
    gram = _kernel(kept, kept, bandwidth) + _RIDGE * np.eye(len(kept))
    return Memorizer(kept, np.linalg.solve(gram, one_hot), bandwidth)


@dataclass(frozen=True, eq=False)
class MemorizedDiffusion:
    """The best denoiser of the empirical distribution of images: a `fedassay.exchange.models.ScoringGenerator`.

    At noise level u an image x is a x + s e with a = cos(pi u / 2), s = sin(pi u / 2), and the best guess of
    x is the mean of the kept images by their posterior weights.

    Attributes:
        kept: Pixels, shape (n, D), in [-1, 1].
        shape: Of one image.
    """

    kept: Matrix
    shape: tuple[int, ...]

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        """Kept images, which is what such a model generates."""
        rows = self.kept[seeds.numpy("sample").integers(len(self.kept), size=count)]
        return np.rint((rows.reshape(count, *self.shape) + 1) * 127.5).astype(np.uint8)

    def losses(self, records: Records, levels: Sequence[float], seeds: Seeds) -> Matrix:
        """Mean squared error of the noise, shape (n, len(levels))."""
        images = 2 * _pixels(records.images) - 1
        found = []
        for number, level in enumerate(levels):
            signal, spread = np.cos(np.pi * level / 2), np.sin(np.pi * level / 2)
            noise = seeds.numpy("level", number).standard_normal(images.shape)
            noisy = signal * images + spread * noise
            if not len(self.kept):
                found.append((noise**2).mean(axis=1))
                continue
            weights = softmax(-cdist(noisy, signal * self.kept, "sqeuclidean") / (2 * spread**2), axis=1)
            guess = (noisy - signal * (weights @ self.kept)) / spread
            found.append(((guess - noise) ** 2).mean(axis=1))
        return np.stack(found, axis=1)


def leaking(source: str, context: AttackedContext) -> tuple[View, MembershipGame]:
    """A release of the cell's clients that gives away membership to whoever looks at `source`, and its game."""
    game = context.game
    builders: Mapping[str, Callable[[Sequence[Records]], View]] = {
        "messages": lambda clients: raw_view(clients, context),
        "model": lambda clients: _memorized(clients, context),
        "generator": lambda clients: _generators(clients, context),
    }
    build = builders[source]
    clients, questions = list(context.data.clients), dict(game.questions)
    if source == "model":
        clients = [label_by_image(client, context.data.classes) for client in clients]
        questions = {name: label_by_image(asked, context.data.classes) for name, asked in questions.items()}
    sizes = {client.name: np.bincount(client.labels, minlength=context.data.classes) for client in clients}

    def simulate(records: Sequence[Records], seeds: Seeds) -> View:
        return build(records)

    control = replace(
        game,
        questions=questions,
        sizes=sizes,
        simulate=simulate,
        seeds=game.seeds.child("control", source),
        most=CONTROL_SHADOWS,
        kept={},
    )
    return build(clients), control


def _memorized(clients: Sequence[Records], context: AuditContext) -> View:
    models = {(client.name, 0): memorize(client, context.data.classes) for client in clients}
    return View((), context.data.classes, context.view.threat, models=models)


def _generators(clients: Sequence[Records], context: AuditContext) -> View:
    generators: dict[str, Generator] = {
        client.name: MemorizedDiffusion(2 * _pixels(client.images) - 1, client.images.shape[1:])
        for client in clients
    }
    return View((), context.data.classes, context.view.threat, generators=generators)


def label_by_image(records: Records, classes: int) -> Records:
    """The same records under labels that are a hash of the image: random, but the same for everybody."""
    labels = [zlib.crc32(image.tobytes()) % classes for image in records.images]
    return records.relabelled(np.array(labels, np.int64))


def _pixels(images: Images) -> Matrix:
    return images.reshape(len(images), -1).astype(np.float64) / 255


def _kernel(first: Matrix, second: Matrix, bandwidth: float) -> Matrix:
    if not len(second):
        return np.zeros((len(first), 0))
    return np.asarray(np.exp(-cdist(first, second, "sqeuclidean") / (2 * bandwidth**2)))


def pooled_blocks(game: MembershipGame) -> tuple[Records, NDArray[np.str_]]:
    """All candidates in the order of the game, and the exchangeable group (client and label) of each.

    A person's records are of one group, by the label of most of them.
    """
    asked = joined("candidates", list(game.questions.values()))
    names = []
    for name, each in game.questions.items():
        units = units_of(each.labels, each.groups)
        names += [f"{name}/{label}" for label in units.labels[units.of]]
    return asked, np.array(names, np.str_)


def non_members(
    candidates: Records,
    halves: Sequence[Records],
    members: Bools,
    blocks: NDArray[np.str_],
    free: Bools,
    rng: np.random.Generator,
) -> Bools:
    """Candidates that are in no client's half: as many of a client's own as of others in every block, shape (n,).

    Of persons as many, each with all of its records.

    Args:
        candidates: Of all clients.
        halves: Records that a release was computed from, by client.
        members: Whether each candidate is the client's own, shape (n,).
        blocks: The exchangeable group of each, shape (n,).
        free: Whether each may be chosen, shape (n,).
        rng: Chooses where there are more of the one kind.
    """
    units = units_of(candidates.labels, candidates.groups).of
    inside = np.bincount(units, weights=candidates.among(*halves)) > 0
    out = ~inside[units]
    chosen = np.zeros(len(out), np.bool_)
    for block in np.unique(blocks):
        left = (blocks == block) & out & free
        sides = [rng.permutation(np.unique(units[part])) for part in (left & members, left & ~members)]
        size = min(len(side) for side in sides)
        for side in sides:
            chosen |= np.isin(units, side[:size])
    return chosen
