"""The metrics alone: reconstructions of any tool against private images, by the packages that papers report by."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

import fedassay

Images = NDArray[np.uint8]


def _images(count: int, seed: int, channels: int = 1, side: int = 12) -> Images:
    """Smooth images, each of its own."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, side // 4, side // 4, channels))
    return np.repeat(np.repeat(coarse, 4, axis=1), 4, axis=2).astype(np.uint8)


def _rebuilt(images: Images, noise: float, seed: int = 7) -> Images:
    rng = np.random.default_rng(seed)
    return np.clip(images + rng.normal(0, noise, images.shape), 0, 255).astype(np.uint8)


def _folder(path: Path, images: Images, names: list[str]) -> Path:
    path.mkdir()
    for name, image in zip(names, images, strict=True):
        Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(path / name)
    return path


def test_pairs_are_those_of_scikit_image_to_rounding() -> None:
    private = _images(20, 0, channels=3)
    rebuilt = _rebuilt(private, 30)
    report = fedassay.similarity_report(private, rebuilt, lpips=None)
    for at in range(20):
        a, b = private[at] / 255, rebuilt[at] / 255
        ssim = structural_similarity(a, b, channel_axis=-1, data_range=1.0)
        assert report.found.values["ssim"][at] == pytest.approx(ssim, abs=1e-12)
        psnr = peak_signal_noise_ratio(a, b, data_range=1.0)
        assert report.found.values["psnr"][at] == pytest.approx(psnr, abs=1e-9)
    assert report.means["ssim"].value == pytest.approx(report.found.values["ssim"].mean())
    assert report.means["ssim"].low is not None


@pytest.mark.long
def test_lpips_is_that_of_its_authors_package_to_rounding(tmp_path: Path) -> None:
    from fedassay.support.torchvision import import_torchvision

    import_torchvision()
    import lpips

    torch.manual_seed(0)
    theirs = lpips.LPIPS(net="squeeze", pnet_rand=True, verbose=False).eval()
    layers = {f"features.{name}": v for part in theirs.net.children() for name, v in part.state_dict().items()}
    torch.save(layers, tmp_path / "mine.pt")
    private = _images(5, 0, channels=3, side=64)
    rebuilt = _rebuilt(private, 40)
    report = fedassay.similarity_report(private, rebuilt, lpips=str(tmp_path / "mine.pt"))
    with torch.no_grad():
        planes = [torch.from_numpy(x).permute(0, 3, 1, 2).float() / 127.5 - 1 for x in (private, rebuilt)]
        expected = theirs(*planes).flatten().numpy()
    assert report.found.values["lpips"] == pytest.approx(expected, abs=1e-6)
    assert "UNOFFICIAL trunk from mine.pt" in report.found.lpips
    assert "LPIPS (trunk mine.pt)" in report.latex()
    assert "LPIPS (trunk mine.pt)" in report.page()


def test_folders_are_matched_by_name_whatever_their_order(tmp_path: Path) -> None:
    private, order = _images(6, 1), [3, 0, 5, 1, 4, 2]
    names = [f"{at}.png" for at in range(6)]
    first = _folder(tmp_path / "private", private, names)
    second = _folder(tmp_path / "rebuilt", _rebuilt(private, 10)[order], [names[at] for at in order])
    report = fedassay.similarity_report(first, second, lpips=None)
    assert "matched by the names of files" in " ".join(report.sentences)
    assert report.found.private.tolist() == report.found.rebuilt.tolist()
    assert min(report.found.values["ssim"]) > 0.5


def test_images_of_another_order_are_assigned_to_their_own() -> None:
    private = _images(30, 2)
    order = np.random.default_rng(0).permutation(30)
    rebuilt = _rebuilt(private, 25)[order]
    report = fedassay.similarity_report(private, rebuilt, pairs="assigned", lpips=None)
    assert (order[report.found.rebuilt] == report.found.private).all()
    assert report.found.tests == ()
    assert "with look-alikes alone" in " ".join(report.sentences)


def test_fewer_reconstructions_are_assigned_and_that_is_said() -> None:
    private = _images(30, 2)
    report = fedassay.similarity_report(private, _rebuilt(private, 25)[10:20], lpips=None)
    assert report.found.private.tolist() == list(range(10, 20))
    assert "not as many on both sides" in " ".join(report.sentences)


def test_a_pairing_that_says_nothing_is_not_significant_and_a_true_one_is() -> None:
    private = _images(40, 3)
    (true,) = fedassay.similarity_report(private, _rebuilt(private, 40), lpips=None).found.tests
    assert true.p == pytest.approx(1e-4)
    (false,) = fedassay.similarity_report(private, _rebuilt(private, 40)[::-1], lpips=None).found.tests
    assert false.p > 0.05
    assert abs(false.value - false.chance) < 0.1


def test_images_of_the_kind_are_no_closer_to_the_private_than_to_look_alikes() -> None:
    private, others, generated = _images(60, 4), _images(60, 5), _images(60, 6)
    found = fedassay.similarity_report(private, generated, lookalikes=others, pairs="assigned", lpips=None).found
    assert found.tests[0].p > 0.05
    found = fedassay.similarity_report(
        private, _rebuilt(private, 25), lookalikes=others, pairs="assigned", lpips=None
    ).found
    assert found.tests[0].p < 0.001
    gain = found.gains["ssim"]
    assert gain.value > 0.1
    assert gain.low is not None
    assert gain.low < gain.value


@pytest.mark.parametrize("given", ["npz", "npy", "tensor", "float"])
def test_every_form_gives_the_same_numbers(given: str, tmp_path: Path) -> None:
    private = _images(8, 8, channels=3)
    rebuilt = _rebuilt(private, 30)
    expected = fedassay.similarity_report(private, rebuilt, lpips=None).found.values["ssim"]
    forms: dict[str, Any] = {
        "npz": tmp_path / "x.npz",
        "npy": tmp_path / "x.npy",
        "tensor": torch.from_numpy(rebuilt).permute(0, 3, 1, 2),
        "float": rebuilt.astype(np.float64) / 255,
    }
    np.savez(tmp_path / "x.npz", images=rebuilt)
    np.save(tmp_path / "x.npy", rebuilt)
    found = fedassay.similarity_report(private, forms[given], lpips=None).found.values["ssim"]
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("private", "rebuilt", "words"),
    [
        (_images(4, 0), _images(4, 0, side=16), "nothing is resized"),
        (_images(4, 0), _images(4, 0).astype(np.float32), "floating point in"),
        (_images(1, 0), _images(1, 0), "allowed: 2 to"),
        (_images(8, 0, channels=3)[0], _images(8, 0, channels=3)[0], "one image with channels last"),
        (_images(4, 0) // 128, _images(4, 0), "private: holds the grey levels 0 and 1 alone"),
        (
            _images(4, 0) / 255**2,
            _images(4, 0),
            r"private: holds values up to 0\.0038 alone; allowed: values up to 1",
        ),
        (np.zeros((4, 3, 5, 3), np.uint8), np.zeros((4, 3, 5, 3), np.uint8), "two|channels last and"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(private: Any, rebuilt: Any, words: str) -> None:
    with pytest.raises(fedassay.DataError, match=words):
        fedassay.similarity_report(private, rebuilt, lpips=None)


@pytest.mark.parametrize("name", ["out.csv", "out.TEX"])
def test_the_page_is_not_lost_under_its_own_table(name: str, tmp_path: Path) -> None:
    found = fedassay.similarity_report(_images(4, 0), _images(4, 1), lpips=None)
    with pytest.raises(fedassay.PlanError, match="given for the page; allowed: another ending"):
        found.save(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_an_unknown_pairing_is_refused() -> None:
    with pytest.raises(fedassay.PlanError, match="pairs='match'; allowed: auto, matched, assigned"):
        fedassay.similarity_report(_images(4, 0), _images(4, 1), pairs="match", lpips=None)  # type: ignore[arg-type]


def test_names_that_fit_in_part_are_refused(tmp_path: Path) -> None:
    first = _folder(tmp_path / "a", _images(3, 0), ["1.png", "2.png", "3.png"])
    second = _folder(tmp_path / "b", _images(3, 0), ["1.png", "2.png", "4.png"])
    with pytest.raises(fedassay.DataError, match="2 of 3 private and 3 reconstructed images share a name"):
        fedassay.similarity_report(first, second, lpips=None)


def test_page_csv_and_latex_hold_the_same(tmp_path: Path) -> None:
    private = _images(9, 9)
    report = fedassay.similarity_report(private, _rebuilt(private, 30), lookalikes=_images(20, 10), lpips=None)
    page = report.save(tmp_path / "out.html").read_text()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [float(row["ssim"]) for row in rows] == report.found.values["ssim"].tolist()
    assert len(report.pairs) == 9
    text = (tmp_path / "out.tex").read_text()
    assert "Look-alikes" in text
    assert "permutation p" in text
    assert "This page contains private images" in page
    assert page.count("<img") == 27
