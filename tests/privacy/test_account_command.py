"""`fedassay account`: the numbers it prints, and one clear message for whatever is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fedassay.cli import main
from fedassay.privacy.accounting import compose
from fedassay.privacy.events import SubsampledGaussianEvent
from fedassay.privacy.gaussian import calibrate_sigma, epsilon_of


class Ran:
    """What one call of the command line printed, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def call(*args: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["fedassay", "account", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Ran(int(ended.value.code or 0), printed.out, printed.err)

    return call


def test_epsilon_of_a_noise_scale(run) -> None:  # type: ignore[no-untyped-def]
    ran = run("gaussian", "--sigma", "2", "--sensitivity", "1.5", "--delta", "1e-5", "--json")
    assert ran.code == 0
    of = {"adjacency": "add_remove", "unit": "record", "delta": 1e-5}
    assert json.loads(ran.out) == {"epsilon": pytest.approx(epsilon_of(0.75, 1e-5)), **of, "mu": 0.75}


def test_an_epsilon_says_what_it_is_of(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    of = ("--adjacency", "replace_one", "--unit", "person")
    assert "epsilon: 4.37718 (one person replaced)" in run("gaussian", "--sigma", "1", "--delta", "1e-5", *of).out
    file = tmp_path / "releases.yaml"
    file.write_text("- {mechanism: dp_sgd, noise_multiplier: 1.1, sampling_rate: 0.05, steps: 40}\n")
    both = [json.loads(run("compose", file, "--delta", "1e-5", "--json", *each).out) for each in ((), of)]
    assert [each["adjacency"] for each in both] == ["add_remove", "replace_one"]
    assert both[1]["epsilon"] > 1.2 * both[0]["epsilon"]


def test_noise_scale_of_an_epsilon(run) -> None:  # type: ignore[no-untyped-def]
    ran = run("gaussian", "--epsilon", "1", "--sensitivity", "1.5", "--delta", "1e-5", "--json")
    found = json.loads(ran.out)
    assert set(found) == {"epsilon", "adjacency", "unit", "delta", "sigma", "mu"}
    assert found["sigma"] == pytest.approx(calibrate_sigma(1.0, 1e-5, 1.5))
    back = run("gaussian", "--sigma", str(found["sigma"]), "--sensitivity", "1.5", "--delta", "1e-5", "--json")
    assert json.loads(back.out)["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert (
        run("gaussian", "--sigma", "1", "--delta", "1e-5").out
        == "epsilon: 4.37718 (one record added or removed)\nmu: 1\n"
    )


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_list_of_releases(run, tmp_path: Path, suffix: str) -> None:  # type: ignore[no-untyped-def]
    releases = [
        {"mechanism": "gaussian", "sigma": 2.0, "sensitivity": 1.2},
        {"mechanism": "gaussian", "sigma": 1.0, "sensitivity": 0.4, "count": 4},
    ]
    file = tmp_path / f"releases.{suffix}"
    file.write_text(json.dumps(releases))
    found = json.loads(run("compose", file, "--delta", "1e-5", "--json").out)
    assert found["mu"] == pytest.approx(1.0)
    assert found["epsilon"] == pytest.approx(4.3771781)
    assert "exact" in found["method"]


def test_sampled_and_pure_releases(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "releases.yaml"
    file.write_text(
        "- {mechanism: dp_sgd, noise_multiplier: 1.1, sampling_rate: 0.05, steps: 40}\n"
        "- {mechanism: pure, epsilon: 0.1}\n"
    )
    found = json.loads(run("compose", file, "--delta", "1e-5", "--json").out)
    alone = compose([SubsampledGaussianEvent(1.1, 0.05, 40)], 1e-5).epsilon
    assert alone < found["epsilon"] <= alone + 0.1 + 1e-3
    assert found["mu"] is None
    assert "method: privacy loss distribution" in run("compose", file, "--delta", "1e-5").out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--sigma", "1", "--epsilon", "1", "--delta", "1e-5"], "give one of --sigma and --epsilon"),
        (["--delta", "1e-5"], "give one of --sigma and --epsilon"),
        (["--epsilon", "0", "--delta", "1e-5"], "--epsilon: given 0; allowed: a number above 0"),
        (["--epsilon", "-1", "--delta", "1e-5"], "--epsilon: given -1"),
        (["--epsilon", "nan", "--delta", "1e-5"], "--epsilon: given nan"),
        (["--sigma", "0", "--delta", "1e-5"], "--sigma: given 0"),
        (["--sigma", "inf", "--delta", "1e-5"], "--sigma: given inf"),
        (["--sigma", "1", "--delta", "0"], "--delta: given 0; allowed: a number in (0, 1)"),
        (["--sigma", "1", "--delta", "1"], "--delta: given 1"),
        (["--sigma", "1", "--delta", "nan"], "--delta: given nan"),
        (["--sigma", "1", "--sensitivity", "-2", "--delta", "1e-5"], "--sensitivity: given -2"),
        (["--sigma", "much", "--delta", "1e-5"], "'much' is not a valid float"),
        (["--sigma", "1"], "Missing option '--delta'"),
    ],
)
def test_a_bad_number_is_one_message(run, args: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    ran = run("gaussian", *args)
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "the list is empty"),
        ("{mechanism: gaussian}", "top level"),
        ("- {mechanism: laplace, scale: 1}", "'laplace'"),
        ("- {sigma: 1}", "mechanism"),
        ("- {mechanism: gaussian, sigma: 0}", "0.gaussian.sigma: given 0; allowed: a number above 0"),
        ("- {mechanism: gaussian, sigma: .nan}", "0.gaussian.sigma"),
        ("- {mechanism: gaussian, sigma: 1, noise: 2}", "0.gaussian.noise: unknown key"),
        ("- {mechanism: pure, epsilon: -1}", "0.pure.epsilon"),
        ("- {mechanism: dp_sgd, noise_multiplier: 1, sampling_rate: 2, steps: 9}", "0.dp_sgd.sampling_rate"),
        (
            "- {mechanism: dp_sgd, noise_multiplier: 1, sampling_rate: 0.1}",
            "0.dp_sgd.steps: missing",
        ),
        ("- [", "not valid YAML"),
    ],
)
def test_a_bad_list_is_one_message(run, tmp_path: Path, content: str, message: str) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "releases.yaml"
    file.write_text(content)
    ran = run("compose", file, "--delta", "1e-5")
    assert ran.code == 2
    assert message in ran.err, ran.err
    assert str(file) in ran.err
    assert ran.err.count("\n") == 1


def test_a_missing_file_and_a_delta_that_no_accountant_resolves(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    missing = run("compose", tmp_path / "none.yaml", "--delta", "1e-5")
    assert missing.code == 2
    assert "cannot be read" in missing.err
    file = tmp_path / "releases.yaml"
    file.write_text("- {mechanism: dp_sgd, noise_multiplier: 1, sampling_rate: 0.1, steps: 9}")
    tiny = run("compose", file, "--delta", "1e-13")
    assert tiny.code == 2
    assert "resolve delta from 1e-12 up; given 1e-13" in tiny.err


def test_a_second_opinion_agrees(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "releases.json"
    steps = {"mechanism": "dp_sgd", "noise_multiplier": 1.1, "sampling_rate": 0.02, "steps": 500}
    file.write_text(json.dumps([steps, {"mechanism": "gaussian", "sigma": 4.0}]))
    ran = run("compose", file, "--delta", "1e-5", "--second-opinion", "--json")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert found["opacus_prv_low"] <= found["epsilon"]
    assert found["epsilon"] == pytest.approx(found["opacus_prv"], rel=0.01)
    file.write_text(json.dumps([{"mechanism": "pure", "epsilon": 0.1}]))
    refused = run("compose", file, "--delta", "1e-5", "--second-opinion")
    assert refused.code == 2
    assert "unknown to Opacus" in refused.err


@pytest.mark.parametrize("number", ["5e-324", "1e-300", "1e-17", "1e-9", "1e300"])
def test_extreme_numbers_have_an_answer(run, number: str) -> None:  # type: ignore[no-untyped-def]
    for delta in ("5e-324", "1e-300", "1e-5", "0.9999999999999999"):
        for given in (("--sigma", number), ("--epsilon", number), ("--sigma", "1", "--sensitivity", number)):
            ran = run("gaussian", *given, "--delta", delta)
            assert (ran.code, ran.err, "nan" in ran.out) == (0, "", False)


def test_a_list_of_too_many_releases_is_refused(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "list.yaml").write_text("- {mechanism: pure, epsilon: 1.0e-9, count: 60000}\n" * 2)
    ran = run("compose", tmp_path / "list.yaml", "--delta", "1e-5")
    assert (ran.code, "120,000 releases; allowed: 100,000" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("entry", "answer"),
    [
        ({"mechanism": "pure", "epsilon": 1e308, "count": 2}, "inf"),
        ({"mechanism": "dp_sgd", "noise_multiplier": 1.0, "sampling_rate": 5e-324, "steps": 10}, 0.0),
        ({"mechanism": "dp_sgd", "noise_multiplier": 5e-324, "sampling_rate": 0.01, "steps": 10}, "inf"),
    ],
)
def test_extreme_lists_have_an_answer(run, tmp_path: Path, entry: dict[str, object], answer: object) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "list.json").write_text(json.dumps([entry]))
    ran = run("compose", tmp_path / "list.json", "--delta", "1e-5", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["epsilon"] == answer


def test_more_steps_than_a_table_takes_are_composed_all_the_same(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    many = {"mechanism": "dp_sgd", "noise_multiplier": 1.0, "sampling_rate": 0.01, "steps": 10_000_000}
    (tmp_path / "steps.json").write_text(json.dumps([many]))
    ran = run("compose", tmp_path / "steps.json", "--delta", "1e-5", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["method"] == "Rényi differential privacy, an upper bound"
    kinds = [{**many, "steps": 1, "noise_multiplier": 1 + i / 100} for i in range(40)]
    tiny = [{"mechanism": "gaussian", "sigma": 1e-9}]
    for entries, says in (
        (kinds, "40 kinds of releases"),
        (tiny, "multipliers from 0.001"),
        ([many], "10,000,000 steps"),
    ):
        (tmp_path / "list.json").write_text(json.dumps(entries))
        ran = run("compose", tmp_path / "list.json", "--delta", "1e-5", "--second-opinion")
        assert ran.code == 2
        assert says in ran.err
        assert len(ran.err.strip().splitlines()) == 1
