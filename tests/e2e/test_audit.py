"""`fedassay audit`: messages of a system that is none of ours, with known records behind them."""

from __future__ import annotations

import html
import json
import math
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import forked
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.numpy import save
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from fedassay.cli import cli
from fedassay.console import policy_file
from fedassay.exchange.release import NoClaim, PrivacyClaim, Release, exact
from fedassay.exchange.transcript import MANIFEST, Message, MessageField, Transcript, load_transcript
from fedassay.execution.captured import AuditOptions, audit_transcript
from fedassay.records.record import Finding, RunRecord, load_record
from fedassay.reports.answer.answer import answer as answer_to
from fedassay.reports.gate.check import check_record
from fedassay.reports.gate.policy import Policy, load_policy
from fedassay.support.errors import DataError, PlanError

CLASSES, WIDTH = 5, 48


def _features(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.maximum(rng.normal(size=(size, WIDTH)), 0), rng.integers(0, CLASSES, size)


def _sums(size: int, seed: int, noise: float = 0.0, hidden: bool = False) -> dict[str, MessageField]:
    """Counts, class sums and second moment of records of norm 1, as a deployed system might send them."""
    features, labels = _features(size, seed)
    if noise:
        features = features / np.linalg.norm(features, axis=1, keepdims=True)
    member = (labels[:, None] == np.arange(CLASSES)).astype(float)
    rng = np.random.default_rng(seed + 1000)
    release = exact()
    if noise:
        release = Release(
            mechanism="gaussian",
            adjacency="add_remove",
            group="sums",
            sensitivity=(math.sqrt(2),),
            noise_scale=(noise,),
        )

    def field(values: np.ndarray, kind: str, own: Release) -> MessageField:
        return MessageField(values + rng.normal(0, noise, values.shape), kind, own, additive=True)  # type: ignore[arg-type]

    fields = {"sums": field(member.T @ features, "class_sums", release)}
    if not noise:
        fields["moment"] = field(features.T @ features, "second_moment", exact())
    if not hidden:
        counts = member.sum(axis=0)
        fields["counts"] = field(counts, "class_counts", release if noise else exact("labels"))
    return fields


def _save(
    folder: Path, fields: list[dict[str, MessageField]], claim: PrivacyClaim | NoClaim | None = None
) -> Path:
    messages = tuple(Message(0, f"client/{i}", "server", own) for i, own in enumerate(fields))
    Transcript("their system", CLASSES, messages, claim or NoClaim()).save(folder)
    return folder


def _audit(
    folder: Path, plan: Path | None = None, again: tuple[Path, ...] = (), *, trust: bool = False
) -> RunRecord:
    options = AuditOptions(quiet=True, force=True, again=again, trust_declared=trust)
    out, record = audit_transcript(folder, plan, folder.parent / "out", options)
    assert load_record(out) == record
    assert (out / "report.html").is_file()
    assert not record.errors
    return record


def _found(record: RunRecord) -> dict[str, Finding]:
    return {finding.source or finding.attack or finding.audit: finding for finding in record.cells[0].findings}


def test_exact_sums_give_their_records_away(tmp_path: Path) -> None:
    record = _audit(_save(tmp_path / "in", [_sums(6, seed=0), _sums(20, seed=1)]))
    found = _found(record)
    factors = found["gram_factorization"]
    assert factors.verdict == "leak"
    assert factors.reason.startswith("26 of 26")
    assert factors.controls.positive is not None
    assert factors.controls.positive.caught
    assert factors.controls.negative is not None
    assert not factors.controls.negative.flagged
    assert found["label_histograms"].verdict == "leak"
    assert record.cells[0].privacy.exact_fields == ("sums", "moment", "counts")
    assert math.isinf(record.cells[0].privacy.accounted or 0.0)


def test_undeclared_fields_are_read_by_their_algebra_and_the_record_says_why(tmp_path: Path) -> None:
    """Declarations trusted, nothing applies; else the same records come back as from declared ones."""

    def renamed(fields: dict[str, MessageField]) -> dict[str, MessageField]:
        return {f"t{place}": replace(fields[name], kind="other") for place, name in enumerate(sorted(fields))}

    folder = _save(tmp_path / "in", [renamed(_sums(6, seed=0)), renamed(_sums(20, seed=1))])
    blind = _audit(folder, trust=True)
    assert {finding.verdict for finding in blind.cells[0].findings} == {"not_run"}
    record = _audit(folder)
    assert _found(record)["gram_factorization"].reason.startswith("26 of 26")
    said = {each["field"]: each for each in record.plan["transcript"]["inferred"]}
    assert {name: each["kind"] for name, each in said.items()} == {
        "t0": "class_counts",
        "t1": "second_moment",
        "t2": "class_sums",
    }
    assert "whole numbers of records that add up to the rank" in said["t2"]["text"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Kind inferred: t1 is second_moment: symmetric, positive semidefinite and singular" in page


def test_the_singletons_are_the_records(tmp_path: Path) -> None:
    """As many vectors are certain as there are classes with one record, and no more."""
    _, labels = _features(6, seed=0)
    alone = int((np.bincount(labels, minlength=CLASSES) == 1).sum())
    assert alone > 0
    found = _found(_audit(_save(tmp_path / "in", [_sums(6, seed=0)])))
    assert found["singletons"].verdict == "leak"
    assert found["singletons"].metrics["vectors_certain"].value == alone


def test_hidden_counts_follow_all_the_same(tmp_path: Path) -> None:
    found = _found(_audit(_save(tmp_path / "in", [_sums(12, seed=0, hidden=True)])))
    assert found["label_histograms"].verdict == "leak"
    assert "second moment" in found["label_histograms"].reason
    assert found["derivable_counts"].verdict == found["rank"].verdict == "leak"
    assert "exact_counts" not in found


def test_more_records_than_features_are_not_told_apart(tmp_path: Path) -> None:
    found = _found(_audit(_save(tmp_path / "in", [_sums(400, seed=0)])))
    assert found["gram_factorization"].verdict == "inconclusive"
    assert found["singletons"].verdict == "no_leak_found"
    assert found["singletons"].limit is not None


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_factorization_is_tried_out_on_as_many_records(tmp_path: Path, dtype: type, hidden: bool) -> None:
    """Controls are of the size, the type and the form of what was captured."""
    captured = {
        name: replace(item, sent=item.values.astype(dtype) if item.kind != "class_counts" else item.values)
        for name, item in _sums(8, seed=0, hidden=hidden).items()
    }
    finding = _found(_audit(_save(tmp_path / "in", [captured])))["gram_factorization"]
    assert finding.controls.positive is not None
    assert "4, 8 known records" in finding.controls.positive.release
    assert finding.controls.positive.caught, finding.reason


@pytest.mark.parametrize("kind", ["parameters", "other"])
def test_a_gradient_is_not_run_in_words_and_passes_no_policy(tmp_path: Path, kind: str) -> None:
    fields = {"gradient": MessageField(np.ones((4, 7)), kind, exact())}  # type: ignore[arg-type]
    record = _audit(_save(tmp_path / "in", [fields]))
    findings = [finding for finding in record.cells[0].findings if finding.audit == "message"]
    assert {finding.verdict for finding in findings} == {"not_run"}
    assert any(f"clients send {kind}" in finding.reason for finding in findings)
    assert check_record(record, load_policy(policy_file(SHIPPED))).exit_code != 0


@pytest.mark.parametrize(("claimed", "verdict"), [(2.0, "inconclusive"), (0.5, "unsupported")])
def test_the_claim_is_held_to_the_ledger(tmp_path: Path, claimed: float, verdict: str) -> None:
    """One Gaussian release with mu = 1/3.7: epsilon 1.009 at delta 1e-5."""
    claim = PrivacyClaim(epsilon=claimed, delta=1e-5, adjacency="add_remove", source="a test")
    noised = [_sums(50, seed=i, noise=3.7 * math.sqrt(2)) for i in range(2)]
    record = _audit(_save(tmp_path / "in", noised, claim))
    privacy = record.cells[0].privacy
    assert privacy.verdict == verdict
    assert privacy.accounted == pytest.approx(1.009, abs=2e-3)
    assert privacy.observed is None
    claims = next(finding for finding in record.cells[0].findings if finding.audit == "dp_claim")
    assert "cannot be drawn again" in claims.metrics["observed"].reason
    assert all(finding.verdict != "leak" for finding in record.cells[0].findings)
    bound = Policy(name="bound", maximum={"accounted": 1.5}, claims="sound", exact_fields="forbidden")
    shipped = load_policy(policy_file(Path("configs/policies/messages.yaml")))
    for policy in (bound, shipped):
        assert check_record(record, policy).exit_code == (2 if verdict == "inconclusive" else 1)
    if verdict == "inconclusive":
        assert "that the noise was added was not tested" in claims.reason
        assert check_record(record, bound.model_copy(update={"claims": "any"})).exit_code == 0


SHIPPED = Path("configs/policies/messages.yaml")
CLAIM = PrivacyClaim(epsilon=2.0, delta=1e-5, adjacency="add_remove", source="a test")


def _declared(kind: str, values: np.ndarray, folder: Path) -> Path:
    """Values that are said to carry noise of scale 4."""
    how = Release(mechanism="gaussian", adjacency="add_remove", sensitivity=(1.0,), noise_scale=(4.0,))
    return _save(folder, [{"sent": MessageField(values, kind, how)}], CLAIM)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "shape", "scale"),
    [
        ("parameters", (200, 50), 0.0),
        ("class_means", (CLASSES, WIDTH), 0.04),
        ("class_sums", (CLASSES, WIDTH), 0.4),
    ],
)
def test_noise_that_is_not_there_breaks_claim_and_policy(
    tmp_path: Path, kind: str, shape: tuple[int, ...], scale: float
) -> None:
    rng = np.random.default_rng(0)
    values = 0.1 * np.abs(rng.normal(size=shape)) + scale * rng.normal(size=shape)
    record = _audit(_declared(kind, values, tmp_path / "in"))
    assert record.cells[0].privacy.verdict == "unsound"
    finding = next(finding for finding in record.cells[0].findings if finding.audit == "dp_claim")
    assert "sent declares Gaussian noise of scale 4" in finding.reason
    assert finding.metrics["noise_p"].value <= 1e-32
    assert check_record(record, load_policy(policy_file(SHIPPED))).exit_code == 1


@pytest.mark.parametrize(
    ("share", "verdict", "code"), [(1.0, "not_refuted", 0), (0.5, "unsound", 1), (3.0, "inconclusive", 2)]
)
def test_captures_of_the_same_records_measure_the_noise(
    tmp_path: Path, share: float, verdict: str, code: int
) -> None:
    rng = np.random.default_rng(1)
    values = 1000 * rng.random((CLASSES, WIDTH))
    folders = [
        _declared("class_sums", values + 4 * share * rng.normal(size=values.shape), tmp_path / name)
        for name in ("one", "two", "three")
    ]
    alone = _audit(folders[0])
    assert alone.cells[0].privacy.verdict == "inconclusive"
    record = _audit(folders[0], again=tuple(folders[1:]))
    assert record.cells[0].privacy.verdict == verdict
    assert [part["folder"] for part in record.plan["transcript"]["again"]] == [
        str(folder) for folder in folders[1:]
    ]
    finding = next(finding for finding in record.cells[0].findings if finding.audit == "dp_claim")
    assert finding.metrics["noise_measured"].low < share < finding.metrics["noise_measured"].high
    assert check_record(record, load_policy(policy_file(SHIPPED))).exit_code == code


@pytest.mark.parametrize("seed", range(4))
def test_how_much_noise_is_missing_is_said_of_the_field_that_shows_it_best(tmp_path: Path, seed: int) -> None:
    """Of two fields with .77 of their noise the smaller figure was said: .70 [.61, .83], over 80 draws."""
    rng = np.random.default_rng(seed)
    share, folders = 0.75, []
    for name in ("one", "two"):
        fields = {}
        for field, kind, size in (("counts", "class_counts", (CLASSES,)), ("sums", "class_sums", (CLASSES, 200))):
            how = Release(mechanism="gaussian", adjacency="add_remove", sensitivity=(1.0,), noise_scale=(4.0,))
            values = 50 + 4 * share * rng.normal(size=size)
            fields[field] = MessageField(values, kind, how)  # type: ignore[arg-type]
        folders.append(_save(tmp_path / name, [fields], CLAIM))
    record = _audit(folders[0], again=(folders[1],))
    assert record.cells[0].privacy.verdict == "unsound"
    finding = next(finding for finding in record.cells[0].findings if finding.audit == "dp_claim")
    measured = finding.metrics["noise_measured"]
    assert measured.reason.startswith("of sums")
    assert measured.value == pytest.approx(share, abs=0.05)
    assert f"only {100 * measured.value:.3g} % of that noise" in answer_to(record).headline


def test_captures_that_do_not_match_are_refused(tmp_path: Path) -> None:
    one = _declared("class_sums", np.zeros((CLASSES, WIDTH)), tmp_path / "one")
    other = _declared("class_sums", np.zeros((CLASSES, WIDTH + 1)), tmp_path / "other")
    with pytest.raises(DataError, match="captures must be of the same records"):
        _audit(one, again=(other,))
    with pytest.raises(PlanError, match="given twice"):
        _audit(one, again=(one,))


def test_class_means_whose_covariance_is_nothing_are_a_leak(tmp_path: Path) -> None:
    """No counts are sent: that the class has one record follows from its covariance."""
    found = _found(_audit(_spreadless(tmp_path / "in")))
    assert found["spreadless_means"].verdict == "leak"
    assert found["spreadless_means"].metrics["vectors_certain"].value == 1


def _gradient(folder: Path) -> Path:
    return _save(folder, [{"gradient": MessageField(np.ones((4, 7)), "parameters", exact())}])


def _spreadless(folder: Path) -> Path:
    features, _ = _features(9, seed=4)
    groups = [features[:1], features[1:5], features[5:]]
    fields = {
        "means": MessageField(np.stack([group.mean(axis=0) for group in groups]), "class_means", exact()),
        "spread": MessageField(np.stack([np.cov(g.T, ddof=0) for g in groups]), "class_covariances", exact()),
        "ids": MessageField(np.arange(3), "class_ids", exact("labels")),
    }
    return _save(folder, [fields])


def _noiseless_weights(folder: Path) -> Path:
    return _declared("parameters", 0.1 * np.random.default_rng(0).normal(size=(200, 50)), folder)


def _large_sums(folder: Path) -> Path:
    return _declared("class_sums", 1000 * np.random.default_rng(0).random((CLASSES, WIDTH)), folder)


@pytest.mark.parametrize(
    ("captured", "first", "anywhere", "code"),
    [
        (_noiseless_weights, "✖ No: the system claims ε = 2 (one record ", "hold no such noise", 1),
        (_large_sums, "? Not yet: the system claims ε = 2 (one record ", "TRANSCRIPT --again SECOND", 2),
        (_gradient, "✖ No: no privacy is claimed.", "No attack was run.", 1),
        (_spreadless, "✖ No: the features of 1 record were recovered exactly", "from spreadless means", 1),
    ],
)
def test_the_first_screen_says_what_was_found(
    tmp_path: Path, captured: Callable[[Path], Path], first: str, anywhere: str, code: int
) -> None:
    folder, out = captured(tmp_path / "in"), tmp_path / "out"
    shown = CliRunner().invoke(cli, ["audit", str(folder), "-o", str(out)]).output
    answer = next(line for line in shown.splitlines() if line.startswith(("✖", "?", "✔")))
    assert answer.startswith(first)
    assert anywhere in " ".join(shown.split())
    assert check_record(load_record(out), load_policy(policy_file(SHIPPED))).exit_code == code


def test_a_wrong_declaration_is_a_warning_on_the_first_screen_and_hides_nothing(tmp_path: Path) -> None:
    def wrong(fields: dict[str, MessageField]) -> dict[str, MessageField]:
        return {name: replace(item, kind="parameters") for name, item in fields.items()}

    folder = _save(tmp_path / "in", [wrong(_sums(6, seed=0)), wrong(_sums(20, seed=1))])
    shown = CliRunner().invoke(cli, ["audit", str(folder), "-o", str(tmp_path / "screen")]).output
    assert "Warning: sums declares parameters, but its arrays are class_sums" in " ".join(shown.split())
    record = _audit(folder)
    finding = _found(record)["gram_factorization"]
    assert finding.reason.startswith("26 of 26")
    assert finding.reading == "inferred"
    assert any("moment as second_moment" in each for each in finding.assumptions)
    assert any("sums declares parameters" in note for note in record.cells[0].notes)


def test_silence_says_what_was_looked_at_and_what_would_make_an_attack_possible(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(7, 9))
    record = _audit(_save(tmp_path / "in", [{"w": MessageField(weights, "parameters", exact())}]))
    looked, possible = record.cells[0].notes[:2]
    assert looked.startswith("No attack could read these messages. Looked at: w (7, 9), parameters")
    assert all(word in possible for word in ("kinds=", "recorder.sent('server'", "--gallery", "--again"))


def test_a_claim_over_an_exact_field_is_unsupported(tmp_path: Path) -> None:
    claim = PrivacyClaim(epsilon=5.0, delta=1e-5, adjacency="add_remove", source="a test")
    record = _audit(_save(tmp_path / "in", [_sums(20, seed=0)], claim))
    assert record.cells[0].privacy.verdict == "unsupported"


def test_features_sent_as_they_are_are_a_leak(tmp_path: Path) -> None:
    features, _ = _features(9, seed=3)
    found = _found(_audit(_save(tmp_path / "in", [{"f": MessageField(features, "features", exact())}])))
    assert found["raw"].verdict == "leak"
    assert found["raw"].metrics["vectors_certain"].value == 9


def test_what_cannot_run_says_why(tmp_path: Path) -> None:
    weights = {"weights": MessageField(np.ones((3, 3), np.float32), "parameters", exact())}
    record = _audit(_save(tmp_path / "in", [weights]))
    for finding in record.cells[0].findings:
        assert finding.verdict in {"not_run", "inconclusive"}
        assert len(finding.reason) > 20
    assert {finding.audit for finding in record.cells[0].findings} >= {"message", "dp_claim", "reconstruction"}
    assert check_record(record, Policy(name="all", must_conclude=("reconstruction",))).exit_code == 2


PLAN = """
name: theirs
data: {name: digits, split: {private: 0.2, attacker: 0.4, public: 0.2, test: 0.2}}
backbone: {name: small_cnn, weights: public}
attacks:
  - feature_diffusion: {preset: tiny, samples: 2, steps: 10}
"""


def _plan(tmp_path: Path, text: str = PLAN) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return path


@pytest.mark.long
def test_a_plan_for_other_classes_is_refused(tmp_path: Path) -> None:
    folder = _save(tmp_path / "in", [_sums(6, seed=0)])
    with pytest.raises(PlanError, match="10 classes, the transcript declares 5"):
        audit_transcript(folder, _plan(tmp_path), tmp_path / "out", AuditOptions(quiet=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_images_of_captured_features_with_a_plan(tmp_path: Path) -> None:
    """Features of digits that the plan's adversary never saw, sent raw, come back as images."""
    from fedassay.execution.prepare import prepare
    from fedassay.plan.resolve import load_scenario
    from fedassay.support.progress import SILENT

    path = _plan(tmp_path, PLAN.replace("attacks:", "methods: [raw_features]\nattacks:"))
    scenario = load_scenario(path)
    test = prepare(scenario.plan, scenario.base, 0, "cpu", SILENT).test
    fields = {"f": MessageField(test.features[:60], "features", exact())}
    Transcript("their system", 10, (Message(0, "client/0", "server", fields),)).save(tmp_path / "in")
    record = _audit(tmp_path / "in", _plan(tmp_path))
    found = next(finding for finding in record.cells[0].findings if finding.audit == "reconstruction")
    assert found.controls.positive is not None
    assert found.controls.positive.caught
    assert found.verdict == "leak", found.reason
    assert (tmp_path / "out" / found.pictures[0].file).is_file()


def test_the_output_may_not_touch_the_transcript(tmp_path: Path) -> None:
    folder = _save(tmp_path / "in", [_sums(6, seed=0)])
    for out in (folder, folder / "run", tmp_path):
        with pytest.raises(PlanError, match="lies in the transcript's folder"):
            audit_transcript(folder, None, out, AuditOptions(quiet=True, force=True))
    assert load_transcript(folder).classes == CLASSES


def test_a_finished_run_is_not_overwritten(tmp_path: Path) -> None:
    folder = _save(tmp_path / "in", [_sums(6, seed=0)])
    audit_transcript(folder, None, tmp_path / "out", AuditOptions(quiet=True))
    before = (tmp_path / "out" / "record.json").read_bytes()
    with pytest.raises(PlanError, match="already holds"):
        audit_transcript(folder, None, tmp_path / "out", AuditOptions(quiet=True))
    assert (tmp_path / "out" / "record.json").read_bytes() == before


class _Trap:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def _edited(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    path = folder / MANIFEST
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def _first(content: dict[str, object]) -> dict[str, object]:
    return content["messages"][0]  # type: ignore[index, no-any-return]


def _nan(folder: Path) -> None:
    arrays = {name: item.values for name, item in load_transcript(folder).messages[0].fields.items()}
    arrays["sums"][0, 0] = np.nan
    _put(folder, arrays)


def _put(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the first message anew, as its sender would: with nothing said of what its file was."""
    (folder / "00000.safetensors").write_bytes(save(arrays))
    _edited(folder, lambda content: _first(content).pop("sha256", None))


def _pickled(folder: Path) -> None:
    (folder / "00000.safetensors").write_bytes(pickle.dumps(_Trap(folder.parent / "executed")))


def _object_array(folder: Path) -> None:
    with (folder / "00000.safetensors").open("wb") as stream:
        np.save(stream, np.array([_Trap(folder.parent / "executed")], object), allow_pickle=True)


def _compressed_bomb(folder: Path) -> None:
    """130 kB that unpack to 130 MB, under the right name."""
    with (folder / "00000.safetensors").open("wb") as stream:
        np.savez_compressed(stream, sums=np.zeros(1 << 24))


def _sparse_bomb(folder: Path) -> None:
    """A file that is 16 GiB long and nothing on the disk."""
    with (folder / "00000.safetensors").open("wb") as stream:
        stream.truncate(16 << 30)


def _header_bomb(folder: Path) -> None:
    """A header that promises a petabyte."""
    header = json.dumps({"sums": {"dtype": "F64", "shape": [1 << 47], "data_offsets": [0, 1 << 50]}}).encode()
    (folder / "00000.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def _repeated(folder: Path) -> None:
    """One file, a thousand messages."""
    _edited(folder, lambda content: content.update(messages=[_first(content)] * 1000))


def _claims_classes(folder: Path) -> None:
    _edited(folder, lambda content: content.update(classes=10**12))


def _symlink(folder: Path) -> None:
    target = folder.parent / "outside.safetensors"
    (folder / "00000.safetensors").rename(target)
    (folder / "00000.safetensors").symlink_to(target)


def _fields_replaced(**fields: np.ndarray) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        arrays = {name: item.values for name, item in load_transcript(folder).messages[0].fields.items()}
        _put(folder, {**arrays, **fields})

    return change


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "nan": (_nan, "'sums' holds NaN"),
    "pickle": (_pickled, "not a safetensors file"),
    "object array": (_object_array, "not a safetensors file"),
    "compressed bomb": (_compressed_bomb, "not a safetensors file"),
    "sparse bomb": (_sparse_bomb, "bytes; allowed: 4,294,967,296"),
    "header bomb": (_header_bomb, "not a safetensors file"),
    "repeated file": (_repeated, "named twice"),
    "too many classes": (_claims_classes, "classes"),
    "outside": (lambda f: _edited(f, lambda c: _first(c).update(file="../../etc/passwd")), "outside"),
    "absolute": (lambda f: _edited(f, lambda c: _first(c).update(file="/etc/passwd")), "outside"),
    "link": (_symlink, "outside"),
    "folder": (lambda f: _edited(f, lambda c: _first(c).update(file=".")), "it is a folder"),
    "no classes": (lambda f: _edited(f, lambda c: c.pop("classes")), "classes: missing; it must be given"),
    "no release": (lambda f: _edited(f, lambda c: _first(c)["fields"]["sums"].pop("release")), "release"),  # type: ignore[attr-defined, index]
    "no fields": (
        lambda f: _edited(f, lambda c: _first(c).pop("fields")),
        "messages.0: says of no field what it is; allowed: one or more",
    ),
    "no json": (lambda f: (f / MANIFEST).write_text("{"), "not valid JSON"),
    "nested": (lambda f: (f / MANIFEST).write_text("[" * 100_000), "not valid JSON"),
    "wrong width": (_fields_replaced(sums=np.zeros((CLASSES, 3))), "of width 48"),
    "wrong classes": (_fields_replaced(sums=np.zeros((4, WIDTH))), "first side must be 5"),
    "one side": (_fields_replaced(sums=np.zeros(CLASSES)), "must have 2 sides"),
    "not square": (_fields_replaced(moment=np.zeros((WIDTH, 2))), "d\\(d\\+1\\)/2"),
    "endless count": (_fields_replaced(counts=np.full(CLASSES, 1e300)), "at most 1e\\+09"),
    "claim of nothing": (
        lambda f: _edited(
            f,
            lambda c: c.update(
                claim={
                    "kind": "claim",
                    "epsilon": 1,
                    "delta": 0,
                    "adjacency": "add_remove",
                    "source": "",
                    "covers": ["S"],
                }
            ),
        ),
        "claim.covers: given 'S'; allowed: fields that clients send, counts",
    ),
    "complex": (_fields_replaced(sums=np.zeros((CLASSES, WIDTH), np.complex64)), "floats, integers or booleans"),
}


@pytest.mark.parametrize(("change", "says"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_transcripts_are_refused_with_one_message(
    tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    folder = _save(tmp_path / "in", [_sums(6, seed=0)])
    change(folder)
    with pytest.raises(DataError, match=says) as caught:
        audit_transcript(folder, None, tmp_path / "out", AuditOptions(quiet=True))
    assert len(str(caught.value)) < 600
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_the_command_prints_one_message_and_exits_2(tmp_path: Path) -> None:
    folder = _save(tmp_path / "in", [_sums(6, seed=0)])
    _pickled(folder)
    done = forked.fedassay("audit", folder, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_labels_outside_the_classes_are_refused(tmp_path: Path) -> None:
    features, labels = _features(9, seed=3)
    fields = {
        "f": MessageField(features, "features", exact()),
        "y": MessageField(labels, "labels", exact("labels")),
    }
    folder = _save(tmp_path / "in", [fields])
    for wrong in (labels - 7, labels + 10**12):
        _put(folder, {"f": features, "y": wrong})
        with pytest.raises(DataError, match=r"labels must lie in 0\.\.4"):
            load_transcript(folder)


def test_a_message_that_claims_a_billion_records_costs_nothing(tmp_path: Path) -> None:
    """Samples are drawn from a mixture as often as its counts say: thinned out, not allocated."""
    means, variances = np.zeros((CLASSES, 4)), np.ones((CLASSES, 4))
    fields = {
        "counts": MessageField(np.full(CLASSES, 10**9), "class_counts", exact("labels")),
        "means": MessageField(means, "mixture_means", exact()),
        "variances": MessageField(variances, "mixture_covariances", exact()),
    }
    record = _audit(_save(tmp_path / "in", [fields]))
    assert record.cells[0].ledger[0].nbytes == CLASSES * 8


def test_the_report_says_what_was_captured_and_how_to_audit_it_again(tmp_path: Path) -> None:
    from fedassay.reports import render

    folder = _save(tmp_path / "in", [_sums(6, seed=0), _sums(20, seed=1)])
    record = _audit(folder)
    page = render(tmp_path / "out", record, "html")
    assert "2 messages of 2 clients" in page
    assert f"fedassay audit {folder} -o runs/in" in page
    assert "fedassay run" not in page
    assert record.plan["transcript"]["sha256"] in page
    for format_ in ("md", "json", "sarif", "junit"):
        assert "their system" in render(tmp_path / "out", record, format_)


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    """A changed byte is another transcript; a file that is no part of it is not."""
    digests = []
    for name, fields in (("a", _sums(6, seed=0)), ("b", _sums(6, seed=0)), ("c", _sums(6, seed=1))):
        folder = _save(tmp_path / name, [fields])
        (folder / "notes.txt").write_text(name)
        out, record = audit_transcript(folder, None, tmp_path / f"out-{name}", AuditOptions(quiet=True))
        assert out.is_dir()
        digests.append(record.plan["transcript"]["sha256"])
    assert digests[0] == digests[1] != digests[2]


def test_a_plan_says_who_the_adversary_is(tmp_path: Path) -> None:
    """Under secure aggregation of everything only the sum is seen, and a dozen records still come out of it."""
    rng = np.random.default_rng(0)
    messages = []
    for client in range(2):
        features = np.maximum(rng.normal(size=(6, WIDTH)), 0)
        member = np.eye(10)[rng.integers(0, 10, 6)]
        fields = {
            "sums": MessageField(member.T @ features, "class_sums", exact(), additive=True),
            "moment": MessageField(features.T @ features, "second_moment", exact(), additive=True),
            "own": MessageField(features, "features", exact()),
        }
        messages.append(Message(0, f"client/{client}", "server", fields))
    Transcript("their system", 10, tuple(messages)).save(tmp_path / "in")
    plan = (
        "name: aggregate\n"
        "data: {name: digits}\n"
        "backbone: {name: pixels}\n"
        "threat: {view: aggregate}\n"
        "attacks: [{gram_factorization: {restarts: 8}}]\n"
    )
    record = _audit(tmp_path / "in", _plan(tmp_path, plan))
    found = _found(record)
    assert found["gram_factorization"].reason.startswith("12 of 12"), found["gram_factorization"].reason
    assert "raw" not in found
    assert "all clients together" in found["label_histograms"].reason
    used = {name: params for entry in record.plan["attacks"] for name, params in entry.items()}
    assert used["gram_factorization"]["restarts"] == 8
    assert record.plan["data"]["name"] == "digits"


def test_another_record_of_the_class() -> None:
    from fedassay.audits.reconstruction.transcript_only import _another

    labels = np.array([2, 0, 2, 1, 2])
    other = _another(labels)
    assert other.tolist()[0:3:2] == [2, 4]
    assert other[4] == 0
    assert all(other[i] != i for i in range(5))


@pytest.mark.long
def test_count_mean_and_covariance_in_files_give_every_record_and_a_transcript(tmp_path: Path) -> None:
    """Files of statistics services, as they lie on disk, and the reading of them audited again."""
    rng = np.random.default_rng(0)
    (tmp_path / "sent").mkdir()
    for site in range(3):
        features = np.maximum(rng.normal(size=(14, 32)) + 0.2, 0)
        np.savez(tmp_path / "sent" / f"site-{site}.npz", n=14, mu=features.mean(axis=0), sigma=np.cov(features.T))
    record = _audit(tmp_path / "sent")
    factors = _found(record)["gram_factorization"]
    assert factors.verdict == "leak"
    assert factors.reason.startswith("42 of 42")
    assert "3 clients in 1 round" in record.plan["transcript"]["read"]
    kept = tmp_path / "kept"
    (tmp_path / "out" / "transcripts" / "captured").rename(kept)
    again = _found(_audit(kept))["gram_factorization"]
    assert (again.verdict, again.reason) == (factors.verdict, factors.reason)


@pytest.mark.long
def test_recorded_count_mean_and_covariance_are_read_whatever_the_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    fields = []
    for _ in range(2):
        features = np.maximum(rng.normal(size=(10, 24)) + 0.2, 0)
        arrays = {"count": np.asarray(10), "mean": features.mean(axis=0), "cov": np.cov(features.T)}
        fields.append({name: MessageField(values, "other", exact()) for name, values in arrays.items()})
    record = _audit(_save(tmp_path / "in", fields))
    assert _found(record)["gram_factorization"].reason.startswith("20 of 20")
    assert "label_histograms" not in {f.source for f in record.cells[0].findings if f.verdict == "leak"}


@pytest.mark.long
def test_a_head_of_scikit_learn_in_a_file_names_its_members(tmp_path: Path) -> None:
    """And a head of other records names nobody of the same candidates."""
    digits = load_digits()
    rng = np.random.default_rng(0)
    features = np.maximum(digits.data / 16 @ rng.normal(size=(64, 128)), 0).astype(np.float32)
    order = rng.permutation(len(features))
    candidates = np.sort(order[:600])
    np.savez(tmp_path / "candidates.npz", features=features[candidates], labels=digits.target[candidates])
    for name, members in (("ours", order[:300]), ("others", order[600:900])):
        scaler = StandardScaler().fit(features[members])
        head = LogisticRegression(max_iter=1000).fit(scaler.transform(features[members]), digits.target[members])
        kept = {each: getattr(scaler, each) for each in ("mean_", "var_", "scale_", "n_samples_seen_")}
        np.savez(tmp_path / f"{name}.npz", coef_=head.coef_, intercept_=head.intercept_, **kept)
        options = ["--gallery", str(tmp_path / "candidates.npz"), "-o", str(tmp_path / name)]
        done = CliRunner().invoke(cli, ["audit", str(tmp_path / f"{name}.npz"), *options])
        assert not done.exception or isinstance(done.exception, SystemExit), done.output
        assert "--gallery FILE" not in done.output
        assert "no kind that its numbers tell" not in done.output
        assert ("an attacker names 300 records that took part" in done.output) == (name == "ours")
        assert ("names" in done.output.split("Report:")[0]) == (name == "ours")


@pytest.mark.parametrize(
    ("arrays", "asks"),
    [
        ({"coef_": (4, 32), "intercept_": (4,)}, "audit TRANSCRIPT --gallery FILE"),
        (
            {"coef": (4, 32), "intercept": (4,), "classes": (4,)},
            "audit TRANSCRIPT --gallery FILE",
        ),
        ({"fc.weight": (8, 32), "fc.bias": (8,), "out.weight": (3, 8)}, "audit FILES --downlink MODEL"),
        ({"q.lora_A": (2, 16), "q.lora_B": (16, 2)}, "See every rule of the policy."),
        ({"a": (), "b": ()}, "audit FILES --kinds NAME=KIND"),
    ],
)
def test_an_audit_of_files_asks_for_what_is_missing(
    arrays: dict[str, tuple[int, ...]], asks: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "client_0.npz", **{name: rng.normal(size=shape) for name, shape in arrays.items()})
    options = ["-o", str(tmp_path / "out")]
    shown = CliRunner().invoke(cli, ["audit", str(tmp_path / "client_0.npz"), *options]).output
    assert asks in shown.partition("Next:")[2]


def test_weights_of_a_network_over_numbers_say_that_its_inputs_follow_and_ask_for_no_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(31, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    torch.save(model.state_dict(), tmp_path / "initial.pt")
    torch.nn.functional.cross_entropy(model(torch.rand(2, 31)), torch.tensor([1, 3])).backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    torch.save(model.state_dict(), tmp_path / "client_0.pt")
    options = ["--downlink", str(tmp_path / "initial.pt"), "-o", str(tmp_path / "out")]
    shown = CliRunner().invoke(cli, ["audit", str(tmp_path / "client_0.pt"), *options]).output
    assert "--downlink" not in shown
    findings = load_record(tmp_path / "out").cells[0].findings
    reason = next(each.reason for each in findings if each.audit == "inversion")
    assert (
        reason
        == "2 inputs of a network's first layer were computed, but they are no images, and only images are judged"
    )


def test_the_page_of_files_says_how_they_were_read_and_repeats_every_option(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path, gallery = tmp_path / "our patients.npz", tmp_path / "candidates.npz"
    np.savez(path, secret=rng.random((3, 8)), n=np.array([4, 5, 6]))
    np.savez(gallery, features=rng.random((30, 8)), labels=np.arange(30) % 3)
    given = ["--kinds", "secret=class_sums", "--aggregate", "--gallery", str(gallery)]
    for kept in (True, False):
        out = tmp_path / str(kept)
        shown = CliRunner().invoke(
            cli, ["audit", str(path), *given, "-o", str(out), *([] if kept else ["--redact"])]
        )
        assert out.is_dir(), shown.output
        page = html.unescape((out / "report.html").read_text())
        again = f"fedassay audit '{path}' --kinds secret=class_sums --aggregate --gallery {gallery} -o runs/"
        assert (again in page) is kept
        assert (
            page.count("<li>Read 1 file as the aggregate of all clients in 1 round: secret (class sums)") == kept
        )
        assert ("secret=class_sums" in (out / "record.json").read_text()) is kept
