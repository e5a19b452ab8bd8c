"""Papers' plans on data that nobody can fetch for them, run small on random images in the layout of the data set.

Their accuracies say nothing; what is held is that the plan reads the published layout, deals it out as the paper
does, and ends with a figure of every method.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from named_folders import MADE

from fedassay.cli import cli
from fedassay.execution.deal import Dealt, deal
from fedassay.plan.own_images import data_seeds
from fedassay.plan.schema import Plan
from fedassay.records.record import RunRecord, load_record

PAPERS = Path(__file__).resolve().parents[2] / "configs" / "papers"

PIXELS = ("backbone.name=pixels", "backbone.weights=null", "data.size=8")
"""In place of networks at their own size, which take minutes."""

STAND_INS: dict[str, tuple[tuple[str, ...], list[set[str]]]] = {
    "fedpft_pacs": (("pacs",), [{"photo"}, {"sketch"}]),
    "fedpft_office_home": (("office_home",), [{"Clipart"}, {"Product"}]),
    "fedpft_birds_cars": (("caltech101", "stanford_cars"), [{"caltech101"}, {"stanford_cars"}]),
    "fedpft_pets_food": (("oxford_pets", "food101"), [{"oxford_pets"}, {"food101"}]),
}
"""By plan: the data sets, and what domains each client sees."""


@pytest.mark.long
@pytest.mark.parametrize("plan", STAND_INS)
def test_every_client_has_the_domain_that_the_paper_gives_it(plan: str, tmp_path: Path) -> None:
    sets, wanted = STAND_INS[plan]
    for name in sets:
        MADE[name](tmp_path / "data", each=60)
    record = _run(plan, tmp_path)
    domains = _dealt(record).roles.private.domains
    names = _dealt(record).roles.private.domain_names
    assert domains is not None
    assert [{names[each] for each in domains[part]} for part in _dealt(record).parts] == wanted


@pytest.mark.long
def test_caltech101_is_spread_over_clients(tmp_path: Path) -> None:
    MADE["caltech101"](tmp_path / "data", each=120)
    record = _run("fedpft_caltech101", tmp_path)
    assert len(_dealt(record).parts) == 5
    assert _dealt(record).data.train.class_names == ("Faces", "ant")


@pytest.mark.long
def test_every_client_of_celeba_has_persons_of_its_own(tmp_path: Path) -> None:
    MADE["celeba"](tmp_path / "data", each=8, people=61)
    dealt = _dealt(_run("fedlog_celeba", tmp_path, "clients.count=60"))
    whose = dealt.roles.private.groups
    assert whose is not None
    persons = [set(whose[part]) for part in dealt.parts]
    assert len(persons) == 5
    assert sum(map(len, persons)) == len(set().union(*persons))
    assert dealt.data.test is not None
    assert dealt.data.test.groups is not None
    assert not set(dealt.data.test.groups) & set(whose)


def _run(plan: str, folder: Path, *given: str) -> RunRecord:
    """Run a plan at a hundredth on `folder/data`; every cell ends with an accuracy."""
    command = ["run", str(PAPERS / f"{plan}.yaml"), "--scale", "0.01", "--offline", "--quiet"]
    command += ["-o", str(folder / "run"), "--set", f"data.root={folder / 'data'}"]
    for each in (*PIXELS, *given):
        command += ["--set", each]
    result = CliRunner().invoke(cli, command, standalone_mode=False)
    assert result.exception is None, result.exception
    record = load_record(folder / "run")
    assert not record.errors
    assert all(cell.utility["accuracy"] is not None for cell in record.cells)
    assert len(record.cells) == len(record.plan["methods"])
    return record


def _dealt(record: RunRecord) -> Dealt:
    """Who holds which records in a run."""
    plan = Plan.model_validate(record.plan)
    return deal(plan, PAPERS, data_seeds(plan.seeds[0]))
