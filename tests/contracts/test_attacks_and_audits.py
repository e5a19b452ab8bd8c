"""What every registered attack and audit owes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from fedassay.contracts.attack import Knowledge
from fedassay.contracts.method import MethodInput
from fedassay.contracts.registry import attack_facts, audit_facts, every_audit
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import Message, MessageField
from fedassay.exchange.view import ThreatModel, View
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.registry import entries, lookup
from fedassay.support.seeds import Seeds

ATTACKS = sorted(entries("attack"))
AUDITS = sorted(entries("audit"))


def _knowledge(task: MethodInput) -> Knowledge:
    return Knowledge(
        attacker=task.public,
        classes=task.classes,
        backbone=task.backbone,
        white_box=True,
        seeds=Seeds(0),
        device="cpu",
        progress=SILENT,
    )


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_says_what_it_lacks(name: str, make_task: Callable[..., MethodInput]) -> None:
    """A view with nothing in it, and one with a field nobody knows: `not_run` with a reason, no crash."""
    odd = {"thing": MessageField(np.zeros(3), "other", exact())}
    for messages in ((), (Message(0, "client/0", "server", odd),)):
        attack = lookup("attack", name)()
        # An attack that works on any view may run, and must then have found nothing.
        reason, result = "", None
        try:
            result = attack.run(View(messages, 10, ThreatModel()), _knowledge(make_task()))
        except NotRunError as error:
            reason = str(error)
        if result is None:
            assert len(reason) > 10
        else:
            assert not result.reconstructions
            assert not result.vectors


@pytest.mark.parametrize("kind", ["method", "attack", "audit", "dataset", "backbone"])
def test_every_component_has_a_summary(kind: str) -> None:
    for name, entry in entries(kind).items():  # type: ignore[arg-type]
        assert entry.summary.endswith("."), f"{kind} {name}: {entry.summary!r}"
        assert len(entry.summary) < 115


@pytest.mark.parametrize("name", AUDITS)
def test_some_attack_gives_what_an_audit_judges(name: str) -> None:
    facts = audit_facts(name)
    assert facts is not None
    given = {kind for attack in ATTACKS for kind in attack_facts(attack).gives}
    assert set(facts.judges) <= given


@pytest.mark.parametrize("name", ATTACKS)
def test_some_audit_judges_every_kind_that_an_attack_gives(name: str) -> None:
    judged = {kind for facts in every_audit().values() for kind in facts.judges}
    assert set(attack_facts(name).gives) <= judged


@pytest.mark.long
def test_what_audits_declare_is_read_without_importing_them() -> None:
    """Reports read it, and must not wait for networks to be imported."""
    code = (
        "import sys; from fedassay.contracts.registry import audit_facts\n"
        f"for name in {AUDITS!r}:\n"
        "    assert audit_facts(name).metrics, name\n"
        "    assert 'torch' not in sys.modules, name"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", AUDITS)
def test_what_is_read_is_what_the_audit_declares(name: str) -> None:
    assert lookup("audit", name).facts is audit_facts(name)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_states_its_limits(name: str) -> None:
    """The module says what the attack assumes and what a null result does not mean."""
    module = inspect.getmodule(lookup("attack", name))
    text = (module.__doc__ or "").lower() if module else ""
    assert "assum" in text, name
    assert "null result" in text, name
