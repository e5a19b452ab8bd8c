"""The instruction sets that searches use: those of the processor, less those that FEDASSAY_WITHOUT names.

The variable is for tests and measurements: with `vnni`, `bf16`, or both with a comma between them, the package
computes as on a processor without these. No result changes by them, only the time that it takes. Other libraries
have variables of their own, which `benchmarks/run_all.py` sets beside this one.
"""

from __future__ import annotations

import os

from fedassay.support.errors import PlanError

VARIABLE = "FEDASSAY_WITHOUT"
OPTIONS = ("vnni", "bf16")
"""The values that FEDASSAY_WITHOUT may name: the instruction sets that the package itself asks for."""

_FOUND_BY = {
    "avx2": "_is_avx2_supported",
    "avx512": "_is_avx512_supported",
    "vnni": "_is_vnni_supported",
    "bf16": "_is_avx512_bf16_supported",
}
"""Functions of `torch.cpu`, which not every version of torch has, by the set that they look for."""


def instruction_sets() -> tuple[str, ...]:
    """Those of `avx2`, `avx512`, `vnni` and `bf16` that the processor has and that are not switched off.

    Raises:
        PlanError: FEDASSAY_WITHOUT names something else.
    """
    import torch

    off = switched_off()
    asked = {name: getattr(torch.cpu, function, None) for name, function in _FOUND_BY.items()}
    return tuple(name for name, has in asked.items() if name not in off and has is not None and has())


def switched_off() -> tuple[str, ...]:
    """Return the instruction sets that FEDASSAY_WITHOUT names, in the order of `OPTIONS`.

    Raises:
        PlanError: It names something that is no option.
    """
    return named_in(VARIABLE, OPTIONS)


def named_in(variable: str, options: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options that a variable of the environment names, in their own order.

    Raises:
        PlanError: It names something that is no option.
    """
    given = [part.strip() for part in os.environ.get(variable, "").split(",") if part.strip()]
    wrong = sorted(set(given) - set(options))
    if wrong:
        raise PlanError(f"{variable}: {', '.join(wrong)!r} given; allowed: {', '.join(options)}, or both")
    return tuple(option for option in options if option in given)
