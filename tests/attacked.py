"""A context as audits of membership get it: asked by the likelihood ratio of what is sent, without shadows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedassay.attacks.membership.attack import Membership
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.membership import MembershipGame, make_game, visible
from fedassay.data.records import Records
from fedassay.exchange.view import View
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

RATIO = Membership(shadows=0, tests=("likelihood_ratio",))


def by_ratio(context: AuditContext) -> AttackedContext:
    """The same context, whose releases may be asked about members."""

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        return visible(context.method.run_on(clients, seeds), context.view.threat)

    questions = make_game(
        context.data.clients, context.data.test, context.data.attacker, simulate, Seeds(1), classes=10
    )
    known = Knowledge(context.data.attacker, 10, None, True, Seeds(0), "cpu", SILENT, game=questions)

    def ask(
        view: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        return RATIO.run(view, known if game is None else replace(known, game=game))

    context = replace(context, view=visible(context.outcome, context.view.threat))
    return context.attacked(ask, "test", questions)
