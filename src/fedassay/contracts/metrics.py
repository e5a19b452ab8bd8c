"""Metrics that more than one audit gives, so that they mean the same everywhere."""

from __future__ import annotations

from fedassay.support.metrics import MetricFacts, Scale, more_metrics

PSNR = MetricFacts(
    "psnr",
    "PSNR",
    "Peak signal-to-noise ratio to the private image, in dB; higher is closer.",
    "dB",
    "higher",
    likeness=2,
    recognisable=20.0,
)
SSIM = MetricFacts(
    "ssim",
    "SSIM",
    "Structural similarity to the private image, at most 1; higher is closer.",
    worse="higher",
    low=-1.0,
    high=1.0,
    likeness=1,
    recognisable=0.5,
    scale=Scale("pictures (SSIM)", everything=1.0),
)
LPIPS = MetricFacts(
    "lpips",
    "LPIPS",
    "Learned perceptual distance to the private image; lower is closer.",
    worse="lower",
    likeness=3,
)
SSIM_GAIN = MetricFacts(
    "ssim_gain",
    "SSIM gain",
    "SSIM of rebuilt with private images, less that of the baseline; above 0 is leakage.",
    worse="higher",
    scale=Scale("pictures (SSIM gain)", nothing=0.0, over="ssim"),
)


def pair_metrics() -> tuple[MetricFacts, ...]:
    """Every metric of pairs of images."""
    return (PSNR, SSIM, LPIPS, *(metric.facts for metric in more_metrics()))


def likeness_metrics() -> tuple[MetricFacts, ...]:
    """Return the metrics of pairs of images that reports quote as figures of similarity, in their order."""
    known = [(metric.likeness, metric) for metric in pair_metrics() if metric.likeness is not None]
    return tuple(metric for _, metric in sorted(known, key=lambda pair: pair[0]))


def declared(name: str) -> MetricFacts:
    """Return the facts of a metric of pairs of images."""
    return next(metric for metric in pair_metrics() if metric.name == name)


IDENTIFIED = (
    MetricFacts(
        "identified",
        "Identified",
        "Of what came back, how many lie nearer to a record of their sender than to any other.",
        worse="higher",
    ),
    MetricFacts(
        "identified_in_ten",
        "Identified in ten",
        "Of what came back, how many have such a record among the ten nearest.",
        worse="higher",
    ),
)
"""Metrics of recovered vectors and images compared with galleries."""

FEATURE_COSINE = MetricFacts(
    "feature_cosine",
    "Cosine of features",
    "Of the features of images that were made with those that were sent, where the records are unknown.",
    worse="higher",
    likeness=5,
)
TOTAL_VARIATION = MetricFacts(
    "total_variation",
    "Total variation",
    "Distance of estimated label histograms from the true ones, in the mean; 0 is exact.",
    worse="lower",
    scale=Scale("label histogram", everything=0.0),
)

HELDOUT_GAP = MetricFacts(
    "heldout_gap",
    "Gap to held-out images",
    "Distance of samples to held-out images, less that to training images.",
    worse="higher",
)

CLAIMED = MetricFacts("claimed", "Claimed ε", "The epsilon that the plan asked for.")
ACCOUNTED = MetricFacts(
    "accounted",
    "Accounted ε",
    "Everything that leaves, on exact sensitivities: an upper bound.",
    worse="higher",
)
ACCOUNTED_STATED = MetricFacts(
    "accounted_stated", "Accounted ε, stated", "The same on the source's own stated sensitivities.", worse="higher"
)
OBSERVED = MetricFacts(
    "observed", "Observed ε", "A lower bound that an attack showed, 95 % one-sided.", worse="higher"
)
MU = MetricFacts("mu", "μ", "Total Gaussian-DP parameter, where everything is Gaussian.", worse="higher")
NOISE_SHARE = MetricFacts(
    "noise_share",
    "Noise, of what is declared",
    "Noise that steps of DP-SGD were measured to add, over what their releases declare; below 1 is too little.",
    worse="lower",
)
NOISE_P = MetricFacts(
    "noise_p",
    "p of the noise",
    "Smallest p-value of captured messages holding the noise that they declare.",
    worse="lower",
)
NOISE_MEASURED = MetricFacts(
    "noise_measured",
    "Noise between captures",
    "Smallest share of the declared noise by which captures of the same records differ.",
    worse="lower",
)
EPSILONS = (CLAIMED, ACCOUNTED, ACCOUNTED_STATED, OBSERVED)
"""Metrics that are an epsilon, each of a relation, a unit and a delta."""

CLAIM = (*EPSILONS, MU)
"""Metrics of a claim of differential privacy, and of the cell that makes it."""
