"""Imports for a process that forks runs of the command line: its children start at once, not after seconds."""

from __future__ import annotations

import gc


def warm() -> None:
    """Import everything that a run, an audit, a report or a check may need, and nothing else.

    What is imported is not looked at by the collector of garbage, here or in the processes that are forked.
    """
    gc.disable()
    _import()
    gc.freeze()
    gc.enable()


def _import() -> None:
    import dp_accounting.pld.privacy_loss_distribution  # noqa: F401
    import pydantic  # noqa: F401
    import safetensors.torch  # noqa: F401
    import scipy.optimize
    import sklearn.datasets  # noqa: F401
    import torch
    import torch._dynamo  # Torch's optimisers import it at their first step.

    import fedassay.backbones.pixels
    import fedassay.cli
    import fedassay.console
    import fedassay.contracts.registry as registry
    import fedassay.data.digits
    import fedassay.execution.captured
    import fedassay.execution.runner
    import fedassay.nets.trained
    import fedassay.plan.estimate
    import fedassay.reports.document.compare
    import fedassay.reports.document.html
    import fedassay.reports.gate.check
    from fedassay.support.torchvision import import_torchvision

    import_torchvision()
    templates = fedassay.reports.document.html._environment()
    for template in templates.list_templates(extensions=["j2"]):
        templates.get_template(template)
    torch.set_num_threads(1)
    scipy.optimize.linear_sum_assignment([[0.0]])
    for name in ("method", "attack", "audit"):
        for entry in registry.entries(name):
            registry.declared(name, entry)
