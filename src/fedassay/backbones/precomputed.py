"""In place of a backbone: features that were computed elsewhere (`data.features`)."""

from __future__ import annotations

from torch import Tensor, nn

from fedassay.backbones.base import Backbone
from fedassay.data.images import ImageSet
from fedassay.support.errors import NotRunError

REASON = "the features were computed elsewhere (data.features): there is no network here to"


class _Absent(nn.Module):
    """The unknown network of features that were computed elsewhere."""

    def forward(self, images: Tensor) -> Tensor:
        """Refuse to compute features.

        Raises:
            NotRunError: Always.
        """
        raise NotRunError(f"{REASON} compute features of other images with")


def precomputed(records: ImageSet, source: str, device: str) -> Backbone:
    """Return a backbone that has the width of precomputed features, and cannot compute any.

    Args:
        records: With features; those of every owner have this width.
        source: The data set.
        device: `cpu` or `cuda`.

    Raises:
        ValueError: The records have no features.
    """
    if records.features is None:
        raise ValueError("precomputed: the records have no features")
    return Backbone(
        name="precomputed",
        width=records.features.shape[1],
        module=_Absent(),
        image_shape=records.image_shape,
        device=device,
        description=f"features computed elsewhere ({source})",
        pretrained_on="not known (features computed elsewhere)",
        fingerprint=f"precomputed:{records.digest()}",
    )


def is_precomputed(backbone: Backbone) -> bool:
    """Whether features were computed elsewhere."""
    return isinstance(backbone.module, _Absent)
