"""Tuning with hardware, on the heaviest workloads of networks that no model has learned from: hours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tune_workloads import DATA_SET, heaviest

from kernelcast.evaluation.tuning_comparison import REFERENCE
from kernelcast.files import json_hash
from kernelcast.records import read_measurements
from kernelcast.stages.config import register_schemas
from kernelcast.stages.config_nodes import project_root
from kernelcast.stages.measure import make_runner
from kernelcast.tuning.learning import Frozen, Refit
from kernelcast.tuning.methods import Inspect, Method, Random, Trained, TvmMlp, TvmXgb
from kernelcast.tuning.search import SearchSettings
from kernelcast.tuning.session import tune
from kernelcast.tuning.tasks import Task
from kernelcast.tvm_compat import resolve_target

logger = logging.getLogger(__name__)

MEASURED_FOLDER = "measured"
"""What was measured, for all methods and seeds: equal programs have equal times."""

INSPECTING = "ensemble_machine_code-rank"

METHODS: Mapping[str, Callable[[str], Method]] = {
    "online": lambda model: Trained(model, Refit()),
    "inspected": lambda model: Trained(model, Refit(), inspect=Inspect(f"{Path(model).parent}/{INSPECTING}", Refit())),
    "frozen": lambda model: Trained(model, Frozen()),
    "analytical": lambda model: Trained(str(Path(model).parent / "analytical"), Frozen()),
    "tvm_xgb": lambda model: TvmXgb(),
    "tvm_mlp": lambda model: TvmMlp(),
    "random": lambda model: Random(),
}
"""Makes a method from the folder of the trained model; the analytical one and the inspecting one lie beside that."""


def tuned(
    output: Path,
    networks: Sequence[str],
    per_network: int,
    methods: Sequence[Method],
    seeds: Sequence[int],
    trials: int,
    target_trials: int,
    cores: int,
) -> tuple[pa.Table, list[str]]:
    """Tunes every workload with every method and seed, each tuning by itself, on this machine.

    Stopped or killed, the same call goes on where it was. A tuning lies in `WORKLOAD/METHOD@SEED`, as those of the
    stage `tune` do, so `python scripts/compare.py paths.tuning=OUTPUT` reads them too. Seeds are the outermost loop:
    what is there after some hours is a whole comparison, of fewer seeds.

    Args:
        output: folder of the tunings.
        networks: that the models have not learned from.
        per_network: workloads of each.
        methods: what is compared.
        seeds: of the searches.
        trials: programs that each tuning measures.
        target_trials: the same for TVM's XGBModel, whose end is the target of the others.
        cores: that a program uses; the models have to be trained for as many.

    Returns:
        The trials of all tunings, and the names of the workloads.

    Raises:
        ConfigError: a model was trained for another target, or a network is unknown.
        MissingInputError: a method's model is not there.
        MeasurementError: nothing could be measured.
    """
    register_schemas()
    with initialize_config_dir(str(Path(project_root()) / "conf"), version_base="1.3"):
        config = compose("tune")
    runner, settings = make_runner(config.runner)
    target = resolve_target({"kind": "llvm", "num-cores": cores})
    workloads = heaviest(read_measurements(DATA_SET, without_traces=True), networks, per_network)
    search: Any = OmegaConf.to_container(config.search)
    root = Path(project_root())
    tables = []
    for seed in seeds:
        for workload in workloads:
            for method in methods:
                logger.info("%s by %s with seed %d", workload.name, method.label, seed)
                tables.append(
                    tune(
                        [Task(workload)],
                        target,
                        method.cost_model(root, target, seed),
                        SearchSettings(
                            trials=target_trials if method.label == REFERENCE else trials,
                            strategy=method.strategy,
                            **search,
                        ),
                        runner,
                        settings,
                        output / workload.name / f"{method.label}@{seed}",
                        seed,
                        method.label,
                        measured_folder=output / MEASURED_FOLDER / json_hash(target)[:8],
                        inspector=method.inspector(root),
                        method_identity=method.identity(root),
                    )
                )
    return pa.concat_tables(tables), [workload.name for workload in workloads]
