"""Judge images computed from captured gradients where the true images are unknown.

An input that was computed from a layer's gradient carries its own evidence where the layer's weights were sent: it
activates exactly the units of the layer to which the gradient says it contributes, which no other image does.
Without weights only an input that makes up the whole gradient is certain: others span the same images, and of
records of one label they may be sums or differences. Whether the attack finds inputs is tried on a gradient made
by hand of images that are known, of the same size, and on the same under noise.
"""

from __future__ import annotations

import numpy as np

from fedassay.audits.evidence import Arms, ControlResult, Figures, Result, Subject, by_arithmetic
from fedassay.audits.verdict import assay
from fedassay.contracts.attack import AttackResult, Reconstruction
from fedassay.contracts.audit import AttackedContext
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.exchange.view import View
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Metric, PictureColumn, unmeasured
from fedassay.support.errors import NotRunError
from fedassay.support.types import Images

_EXPLAINED = 0.05
"""Share of units that may contradict an input that is taken for a record's."""
_RECORDS, _UNITS, _PICTURES = 2, 64, 8
_INPUTS = "layer_inputs"
"""The source with exactly computed images, if they are not distinguished from mixtures."""
_NO_RECORDS = "the clients' records were not given, so nothing was held against them"


def captured_inversions(audit: str, result: AttackResult, context: AttackedContext) -> list[Finding]:
    """One finding for each source of images.

    Args:
        audit: Name of the audit.
        result: Images, with `misfit/<source>`.
        context: Without clients; its `attack` runs the same attack on the controls.
    """
    return [_finding(audit, result, made, context) for made in result.reconstructions]


def _finding(audit: str, result: AttackResult, made: Reconstruction, context: AttackedContext) -> Finding:
    name, images = made.source.name, made.images[:, 0]
    misfit = np.asarray(result.scores[f"misfit/{name}"], np.float64)
    exact_inputs = _is_exact(result) and name == _INPUTS
    certain = int((misfit < _EXPLAINED).sum()) if _is_exact(result) else 0
    computed = certain or (len(images) if exact_inputs else 0)
    subject = Subject(audit, result.attack, name, "all")
    columns = [PictureColumn(caption=f"image {i}", metrics={}) for i in range(min(_PICTURES, len(images)))]
    picture = context.io.grid((name,), f"{result.attack}: {name}", {name: images[: len(columns)]}, columns)
    figures = Figures(
        {"misfit": Metric(value=float(np.median(misfit)), n=len(misfit)), "psnr": unmeasured(_NO_RECORDS)},
        assumptions=(_NO_RECORDS, "pixels lie between black and white as the inputs of the layer do"),
        pictures=(picture,),
    )
    shown = Result(
        test=by_arithmetic(computed > 0, "misfit"),
        shown=f"{certain} of {len(images)} images are inputs that explain which units of their layer have a "
        "part in the gradient"
        if certain or not computed
        else f"{computed} image{'s'[: computed != 1]} computed from gradients, each of a record, or of a sum or "
        "difference of several",
        near_copies=certain,
        harm=Harm(kind="pictures", of="record", count=certain, mechanism=name)
        if certain
        else Harm(kind="pictures", of="record", total=len(images), metric="misfit", mechanism=name),
        undecided=f"{len(images)} images may show records; {_NO_RECORDS}",
    )
    known = _control("a gradient by hand of images that are known", _by_hand(context, images.shape[1:], noise=0.0))
    noised = _control("the same under noise as large as it", _by_hand(context, images.shape[1:], noise=1.0))
    return assay(subject, Arms(shown, (known,), noised), figures)


def _is_exact(result: AttackResult) -> bool:
    """Whether the gradient was taken apart into inputs of single records."""
    return bool(np.asarray(result.scores.get("recovered", np.zeros(1))).any())


def _control(release: str, recovered: int) -> ControlResult:
    shown = f"{recovered} of {_RECORDS} images came back"
    return ControlResult(release, detected=recovered == _RECORDS, shown=shown, value=float(recovered), n=_RECORDS)


def _by_hand(context: AttackedContext, shape: tuple[int, ...], *, noise: float) -> int:
    """Number of images recovered from the gradient of a layer of rectified units, made of known images."""
    rng = context.seeds.numpy("inversion", "by hand")
    images: Images = rng.integers(0, 256, (_RECORDS, *shape)).astype(np.uint8)
    inputs = images.transpose(0, 3, 1, 2).reshape(_RECORDS, -1) / 255
    weights = rng.normal(size=(_UNITS, inputs.shape[1])) / np.sqrt(inputs.shape[1])
    errors = rng.normal(size=(_RECORDS, _UNITS)) * (inputs @ weights.T > 0)
    arrays = {"layer.weight": errors.T @ inputs, "layer.bias": errors.sum(axis=0)}
    fields = {
        name: MessageField(
            (values + noise * np.abs(values).max() * rng.normal(size=values.shape)).astype(np.float32),
            "gradient",
            exact(),
        )
        for name, values in arrays.items()
    }
    seen = View((Message(1, "control", SERVER, fields),), context.data.classes, context.view.threat)
    try:
        made = context.attack(seen).reconstructions
    except NotRunError:
        return 0
    shown = [image for item in made for image in item.images[:, 0] if image.shape == shape]
    found = [min((int(np.abs(own - image.astype(int)).max()) for image in shown), default=255) for own in images]
    return sum(away <= 1 for away in found)
