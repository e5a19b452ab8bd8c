"""People whose features, class and attribute are bound in a way that is known, as an audit gets them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from contexts import with_data

from fedassay.attacks.attribute_likelihood import AttributeLikelihood
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.membership import MembershipGame, no_questions, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.feature_archive import stand_ins
from fedassay.data.records import Records
from fedassay.exchange.view import View
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Kind = Literal["shift", "column", "none", "label"]
Attack = Callable[[View, Knowledge], AttackResult]

CLASSES, WIDTH = 3, 64
"""As wide as the pixels of the digits that tasks are of."""


def people(
    name: str, count: int, kind: Kind, rng: np.random.Generator, shift: float = 3.0, share: float = 0.5
) -> Records:
    """Gaussian features of three classes and an attribute `sick` that a `share` has.

    `shift`: the attribute moves the first feature. `column`: it is the first feature. `none`: nothing depends on
    it. `label`: the class is asked about, and classes overlap.
    """
    labels, sick = np.arange(count) % CLASSES, (rng.random(count) < share).astype(np.int64)
    centres = np.random.default_rng(1).normal(scale=0.1 if kind == "label" else 1.0, size=(CLASSES, WIDTH))
    features = centres[labels] + rng.normal(size=(count, WIDTH))
    if kind == "shift":
        features[:, 0] += shift * sick
    if kind == "column":
        features[:, 0] = sick
    features = features.astype(np.float32)
    attributes = {"label": labels} if kind == "label" else {"sick": sick}
    return Records(name, stand_ins(features), labels, lambda _images: features, None, attributes)


def context_of(
    make_task: Callable[..., MethodInput],
    make_context: Callable[..., AuditContext],
    method: Method,
    kind: Kind,
    *,
    seed: int = 0,
    clients: int = 20,
    each: int = 15,
    shift: float = 3.0,
    share: float = 0.5,
    attack: Attack | None = None,
    bounds: int = 1,
    **task: Any,
) -> AttackedContext:
    """A release of clients of such people, `each` a client, and the attack on it.

    Half of the people whom the adversary knows have the attribute, whatever the `share` of the others is.
    """
    rng = np.random.default_rng(seed)

    def some(name: str, count: int) -> Records:
        return people(name, count, kind, rng, shift, 0.5 if name in ("attacker", "control") else share)

    made = make_task(clients=1, records=10, seed=seed, **task)
    made = replace(
        made,
        clients=tuple(some(f"client/{i}", each) for i in range(clients)),
        test=some("test", 3 * clients * each),
        classes=CLASSES,
    )
    whole = make_context(made, method, bounds=bounds)
    known = some("attacker", 900)
    whole = with_data(whole, attacker=known, fresh=known, control=some("control", 150), classes=CLASSES)
    return by_likelihood(whole, attack)


def by_likelihood(context: AuditContext, attack: Attack | None = None) -> AttackedContext:
    """The same context, whose releases may be asked about attributes."""
    run = AttributeLikelihood().run if attack is None else attack

    def ask(
        view: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        return run(
            view,
            Knowledge(
                context.data.attacker, context.data.classes, None, False, Seeds(0), "cpu", SILENT, game=game
            ),
        )

    context = replace(context, view=visible(context.outcome, context.view.threat))
    return context.attacked(ask, "test", no_questions())
