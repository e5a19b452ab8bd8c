"""FedLog's clients: the bodies, their loss under a frozen head, and their predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.methods.shared.local_networks import LocalNetwork, Scores, local_network, outputs
from fedassay.nets.bodies import BodySpec, build_body
from fedassay.nets.local_training import RecordLoss
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images

Activation = Literal["relu", "none"]
"""The last layer of a body. Under `relu` all inputs of the head, and all summands of T, are at least 0."""

Drop = Callable[[Tensor], Tensor]
"""Features (n, m - 1) as the head is given them in training: some of them dropped."""


@dataclass(frozen=True, eq=False)
class Shared:
    """Public knowledge after a round.

    Attributes:
        head: eta, shape (C, m), float32 as in messages.
        means: Global class means of the free features, shape (C, m - 1); None before the first round.
        known: True for classes with a mean, shape (C,).
    """

    head: NDArray[np.float32]
    means: Floats | None = None
    known: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class Bodies:
    """All bodies, and the assignment of clients to them.

    Attributes:
        networks: Bodies with the records they are trained on.
        of_client: For each client the position of its body; clients share one that is trained on public
            records.
    """

    networks: tuple[LocalNetwork, ...]
    of_client: tuple[int, ...]


def make_bodies(
    task: MethodInput,
    specs: Sequence[BodySpec],
    *,
    seeds: Seeds,
    width: int,
    activation: Activation,
    alike: bool,
    from_public: Records | None,
) -> Bodies:
    """Build the clients' bodies.

    Args:
        task: The clients, the device.
        specs: Client i gets entry i modulo their number.
        seeds: Seeds of the initialisations.
        width: m; a body has m - 1 outputs beside the constant.
        activation: See `Activation`.
        alike: Whether bodies of one entry start from the same initialisation.
        from_public: Records that all bodies are trained on in place of their clients' own, or None.

    Raises:
        PlanError: Images do not fit through a body.
    """
    networks: dict[str, LocalNetwork] = {}
    names = []
    for index, client in enumerate(task.clients):
        kind = index % len(specs)
        start = f"{kind}" if alike else f"{kind}/{client.name}"
        name = client.name if from_public is None else f"public/{start}"
        names.append(name)
        if name not in networks:
            body = build_body(specs[kind], client.image_shape, width - 1, seeds.integer("body", start))
            if activation == "relu":
                body = nn.Sequential(body, nn.ReLU())
            records = client if from_public is None else from_public
            persons = task.persons(client) if from_public is None else None
            networks[name] = local_network(name, body, records, task.device, persons)
    order = list(networks)
    return Bodies(tuple(networks.values()), tuple(order.index(name) for name in names))


def dropping(share: float, seed: int) -> Drop | None:
    """Dropout between body and head: a share of the features is set to 0, the others are scaled up.

    Args:
        share: In [0, 1); 0: no dropout.
        seed: Seed of all masks of a training, one after the other, independent of all other draws.
    """
    if not share:
        return None
    generator = torch.Generator().manual_seed(seed)

    def drop(features: Tensor) -> Tensor:
        mask = torch.rand(features.shape, generator=generator) >= share
        return features * (mask.to(features) / (1 - share))

    return drop


def body_loss(
    shared: Shared,
    *,
    clip: float | None,
    through: bool,
    alpha: float,
    beta: float,
    device: str,
    drop: Drop | None = None,
) -> RecordLoss:
    """Cross-entropy under the frozen head (equation 12), with FedLog-C's distances (equation 15).

    Args:
        shared: The head, and the class means where there are any.
        clip: Features are clipped to [-clip, clip]; None: no clipping.
        through: Whether gradients pass through the clip (straight-through, Bengio et al. 2013) or vanish where
            it bites.
        alpha: Weight of the squared distance to the own class's mean; 0 with beta 0: FedLog.
        beta: Weight of those to the other classes' means, which are subtracted.
        device: Device of the bodies.
        drop: Dropout, before the clip as in the authors' code; None: none.
    """
    eta = torch.tensor(shared.head, device=device)
    means = known = None
    if shared.means is not None and shared.known is not None and (alpha or beta):
        means = torch.tensor(shared.means, dtype=torch.float32, device=device)
        known = torch.tensor(shared.known, dtype=torch.float32, device=device)

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        features = features if drop is None else drop(features)
        free = features if clip is None else features.clamp(-clip, clip)
        if through:
            free = features + (free - features).detach()
        total = functional.cross_entropy(eta[:, 0] + free @ eta[:, 1:].T, labels, reduction="none")
        if means is None or known is None:
            return total
        distances = (free[:, None] - means).square().sum(dim=2) * known
        # Not one_hot, which looks at its values: per-record gradients are taken under vmap.
        own = (labels[:, None] == torch.arange(len(known), device=labels.device)).to(distances.dtype)
        return total + (distances * (alpha * own - beta * (1 - own))).sum(dim=1)

    return loss


def body_scores(network: LocalNetwork, head: NDArray[np.float32], clip: float | None) -> Scores:
    """Class scores by a body under the shared head."""
    eta = head.astype(np.float64)

    def scores(images: Images) -> NDArray[np.float64]:
        features = outputs(network.module, images).astype(np.float64)
        free = features if clip is None else features.clip(-clip, clip)
        return np.asarray(eta[:, 0] + free @ eta[:, 1:].T, dtype=np.float64)

    return scores
