"""Writes the small files beside it with the packages of deployed systems: each in an environment that has it.

    python make.py nvflare|openfl|flwr FOLDER

NVFlare's own persistors, task handlers, controller and writer run in one process, with a context in place of its
server; OpenFL's own functions make and dump its models; Flower's records hold what its documentation saves.
Written by nvflare 2.9.0, openfl 1.9 and flwr 1.42.0 with torch 2.13.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

SITES = ("site-1", "site-2")
FEATURES = ("age", "bmi", "dose")


def records(site: int) -> np.ndarray:
    """Of a site, shape (9 + 2 site, 3)."""
    return np.round(np.random.default_rng(site).gamma(4.0, size=(9 + 2 * site, len(FEATURES))), 2)


def weights(number: int) -> dict[str, np.ndarray]:
    """Of a network of two layers."""
    rng = np.random.default_rng(number)
    shapes = {"fc.weight": (4, 6), "fc.bias": (4,), "out.weight": (3, 4), "out.bias": (3,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def nvflare(folder: Path) -> None:
    """The global and the best model, a NumPy model, and statistics of two sites."""
    import torch
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.app_common.abstract.model import make_model_learnable
    from nvflare.app_common.app_constant import AppConstants
    from nvflare.app_common.app_event_type import AppEventType
    from nvflare.app_common.np.np_model_persistor import NPModelPersistor
    from nvflare.app_opt.pt.file_model_persistor import PTFileModelPersistor

    class Context(FLContext):
        def get_workspace(self) -> Any:
            return SimpleNamespace(get_result_root=lambda job: str(folder), get_run_dir=lambda job: str(folder))

        def get_job_id(self) -> str:
            return "job"

    context = Context()
    context.set_prop(FLContextKey.APP_ROOT, str(folder), private=True, sticky=False)
    model = torch.nn.Sequential()
    for name, (wide, out) in {"fc": (6, 4), "out": (4, 3)}.items():
        model.add_module(name, torch.nn.Linear(wide, out))
    persistor = PTFileModelPersistor(model=model)
    persistor._initialize(context)
    persistor.load_model(context)
    persistor.save_model(make_model_learnable(weights(0), {"current_round": 2}), context)
    best = make_model_learnable(weights(1), {"current_round": 1})
    context.set_prop(AppConstants.GLOBAL_MODEL, best, private=True, sticky=False)
    persistor.handle_event(AppEventType.GLOBAL_BEST_MODEL_AVAILABLE, context)
    NPModelPersistor(model_dir=".").save_model(
        make_model_learnable({"numpy_key": weights(0)["fc.weight"]}, {}), context
    )
    _statistics(folder, context)


def _statistics(folder: Path, context: Any) -> None:
    import pandas
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.app_constant import StatisticsConstants
    from nvflare.app_common.executors.statistics.statistics_task_handler import StatisticsTaskHandler
    from nvflare.app_common.statistics.json_stats_file_persistor import JsonStatsFileWriter
    from nvflare.app_common.statistics.numeric_stats import get_global_stats
    from nvflare.app_common.workflows.statistics_controller import StatisticsController
    from nvflare.app_opt.statistics.df.df_core_statistics import DFStatisticsCore
    from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

    nvflare_fobs_initialize()

    class Site(DFStatisticsCore):
        def __init__(self, number: int) -> None:
            super().__init__()
            held = records(number)
            self.data = {
                "train": pandas.DataFrame(held[:-4], columns=FEATURES),
                "test": pandas.DataFrame(held[-4:], columns=FEATURES),
            }

    asked = {"count": {}, "sum": {}, "mean": {}, "stddev": {}, "histogram": {"*": {"bins": 4}}}
    controller = StatisticsController(asked, writer_id="writer", min_clients=len(SITES))
    for step in (StatisticsConstants.STATS_1st_STATISTICS, StatisticsConstants.STATS_2nd_STATISTICS):
        for number, site in enumerate(SITES):
            handler = StatisticsTaskHandler("none")
            handler.stats_generator = Site(number)
            handler.log_info = lambda *said: None
            told: Shareable = controller._prepare_inputs(step)
            sent = handler.execute_task(StatisticsConstants.FED_STATS_TASK, told, context, None)
            result = DXO(DataKind.STATISTICS, data=sent).to_shareable()
            task = SimpleNamespace(
                name=StatisticsConstants.FED_STATS_TASK, props={StatisticsConstants.STATISTICS_TASK_KEY: step}
            )
            controller.log_info = lambda *said: None
            controller.results_cb(
                SimpleNamespace(client=SimpleNamespace(name=site), task=task, result=result), context
            )
        controller.global_statistics = get_global_stats(
            controller.global_statistics, controller.client_statistics, step, asked, 4
        )
    writer = JsonStatsFileWriter("nvflare_stats.json")
    writer.get_output_path = lambda context: str(folder / "nvflare_stats.json")
    writer.save(controller._combine_all_statistics(), True, context)


def openfl(folder: Path) -> None:
    """Models as its aggregator dumps them, with and without compression."""
    import openfl.pipelines as pipelines
    from openfl.protocols.utils import construct_model_proto, dump_proto

    for name, pipeline in {"plain": pipelines.NoCompressionPipeline(), "kc": pipelines.KCPipeline()}.items():
        model = construct_model_proto(weights(0), 2, pipeline)
        dump_proto(model, str(folder / f"openfl_{name}.pbuf"))


def flwr(folder: Path) -> None:
    """Arrays of two rounds as its how-to saves them, and a state dict as its quickstart does."""
    import torch
    from flwr.app import ArrayRecord

    for number in (1, 2):
        record = ArrayRecord([*weights(number).values()])
        np.savez(folder / f"round-{number}-weights.npz", *record.to_numpy_ndarrays())
    held = ArrayRecord({name: torch.from_numpy(values) for name, values in weights(2).items()})
    torch.save(held.to_torch_state_dict(), folder / "final_model.pt")


if __name__ == "__main__":
    {"nvflare": nvflare, "openfl": openfl, "flwr": flwr}[sys.argv[1]](Path(sys.argv[2]))
