"""The stage `tune`: finds fast schedules of workloads, or of a whole network that is then compiled with them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelcast.errors import ConfigError, MalformedDataError, MissingInputError
from kernelcast.files import json_hash, write_json
from kernelcast.stages.instantiation import made

if TYPE_CHECKING:
    from kernelcast.measurement.devices import Runner
    from kernelcast.measurement.settings import RunnerSettings
    from kernelcast.networks.fusion_groups import FusionSpace
    from kernelcast.networks.requests import Request
    from kernelcast.networks.saved import SavedNetwork
    from kernelcast.stages.tracking import TrackedRun
    from kernelcast.tuning.deployment import Deployment
    from kernelcast.tuning.fusion import Predictor
    from kernelcast.tuning.latency import LatencySettings
    from kernelcast.tuning.methods import Method
    from kernelcast.tuning.schedules import ChosenSchedule
    from kernelcast.tuning.search import SearchSettings
    from kernelcast.tuning.tasks import Task
    from kernelcast.tuning.winners import Winner

logger = logging.getLogger(__name__)

MEASURED_FOLDER = "measured"
"""Below `paths.tuning`: what was measured, for all methods and seeds, so that they compare on the same times."""

NETWORK_FOLDER, DEPLOYED_FOLDER = "network", "deployed"
FUSION_FILE = "fusion.json"


@dataclass(frozen=True)
class Job:
    """What all tunings of one command have in common.

    Attributes:
        folder: `paths.tuning`.
        root: `paths.root`.
        target: complete.
        runner: where programs run.
        settings: limits and timing.
        method: which cost model.
        search: how.
        latency: how networks are timed.
        seed: of the search.
        finalists: programs of a workload that are measured again.
        fusion: whether the model decides what a network fuses.
    """

    folder: Path
    root: Path
    target: dict[str, Any]
    runner: Runner
    settings: RunnerSettings
    method: Method
    search: SearchSettings
    latency: LatencySettings
    seed: int
    finalists: int
    fusion: bool

    @property
    def name(self) -> str:
        """That of a tuning's folder."""
        return f"{self.method.label}@{self.seed}"

    @property
    def measured(self) -> Path:
        """Where programs of this target are measured once."""
        return self.folder / MEASURED_FOLDER / json_hash(self.target)[:8]


def tune(config: DictConfig) -> None:
    """Tunes each workload of `workload` by itself, or the kernels of `network` together, and names the winners.

    A tuning has the folder `NAME/METHOD@SEED` below `paths.tuning`: its trials, TVM's database of them and the winners,
    each measured again and checked. A network is also compiled with the winners, checked against torch, exported and
    timed beside untuned TVM, torch and the tunings of other methods. Started again, a tuning goes on where it was.

    Raises:
        ConfigError: a setting that cannot work, found before any work.
        MissingInputError: the method's model is not there.
        MeasurementError: nothing could be measured, or the compiled network does not compute what torch does.
    """
    from kernelcast.stages.tracking import tracked_run

    job = read_job(config)
    request = _network_request(config)
    name = " and ".join(str(name) for name in (config.network if request else config.workload))
    with tracked_run(config, f"{job.method.label}: {name}", "tune") as run:
        if request is not None:
            tune_network(job, request, run)
            return
        from kernelcast.measurement.kept_open import kept_open
        from kernelcast.stages.workloads import make_workloads
        from kernelcast.tuning.tasks import Task

        workloads = make_workloads(config.workload)
        with kept_open(job.runner, job.target, job.settings) as runner:
            for workload in workloads:
                folder = job.folder / workload.name / job.name
                find_winners(replace(job, runner=runner), folder, [Task(workload)], run)


def read_job(config: DictConfig) -> Job:
    """The settings of a configuration (schema `TuneConfig`).

    Raises:
        ConfigError: one that cannot work.
    """
    from kernelcast.measurement.settings import require_positive_integer
    from kernelcast.stages.measure import make_runner
    from kernelcast.tuning.latency import LatencySettings
    from kernelcast.tuning.search import SearchSettings
    from kernelcast.tvm_compat import resolve_target

    if bool(config.workload) == bool(config.network):
        raise ConfigError(
            "name what to tune, either workload=NAME (a file in conf/workload) or network=NAME (in conf/network)"
        )
    if config.fusion and not config.network:
        raise ConfigError("fusion=true: only a network has operators to fuse; name one with network=NAME")
    for name in ("trials", "finalists"):
        require_positive_integer(name, config[name])
    runner, settings = make_runner(config.runner)
    method: Method = made("method", config.method)
    plain: Any = OmegaConf.to_container(config.search)
    return Job(
        folder=Path(config.paths.tuning),
        root=Path(config.paths.root),
        target=resolve_target(OmegaConf.to_container(config.target)),
        runner=runner,
        settings=settings,
        method=method,
        search=SearchSettings(trials=config.trials, strategy=method.strategy, **plain),
        latency=LatencySettings(**config.latency),
        seed=config.seed,
        finalists=config.finalists,
        fusion=config.fusion,
    )


def tune_network(job: Job, request: Request, run: TrackedRun) -> None:
    """Tunes the kernels of a network, compiles it with the winners and times it."""
    from kernelcast.trials import LATENCY_FILE
    from kernelcast.tuning.deployment import deploy
    from kernelcast.tuning.network import latencies_json, latency_table, network_latencies, network_tasks
    from kernelcast.tuning.schedules import best_schedules
    from kernelcast.tuning.winners import WINNERS_FOLDER

    saved = saved_network(request, job.folder / request.label / NETWORK_FOLDER)
    folder = job.folder / request.label / job.name
    fusing = Fusing.of(job, saved) if job.fusion else None
    find_winners(job, folder, fusing.tasks if fusing else network_tasks(saved), run, saved.name)
    schedules = best_schedules(folder / WINNERS_FOLDER, job.target)
    apart = fusing.apart(schedules, folder) if fusing else ()
    deployment = deploy(saved, schedules, job.target, folder / DEPLOYED_FOLDER, apart)
    latencies = network_latencies(saved, {job.name: deployment, **_others(job, saved)}, job.target, job.latency)
    write_json(folder / LATENCY_FILE, latencies_json(latencies))
    run.artifact(folder / LATENCY_FILE)
    run.metrics(
        {
            f"tune/latency_seconds/{row.contender}": row.minimum_seconds
            for row in latencies
            if row.minimum_seconds is not None
        }
    )
    Console().print(latency_table(saved.name, latencies))
    logger.info("the compiled network, to be loaded with TVM alone: %s", deployment.folder)


def find_winners(job: Job, folder: Path, tasks: Sequence[Task], run: TrackedRun, network: str = "") -> list[Winner]:
    """Searches, measures the best again, and says what came of it; the log of trials goes with the run."""
    from kernelcast.measurement.kept_open import kept_open
    from kernelcast.trials import TRIALS_FILE
    from kernelcast.tuning.session import tune as search
    from kernelcast.tuning.winners import WINNERS_FILE, WINNERS_FOLDER, measure_winners

    model = job.method.cost_model(job.root, job.target, job.seed)
    inspector = job.method.inspector(job.root)
    with kept_open(job.runner, job.target, job.settings) as runner:
        search(
            tasks,
            job.target,
            model,
            job.search,
            runner,
            job.settings,
            folder,
            job.seed,
            job.method.label,
            network,
            job.measured,
            inspector,
            job.method.identity(job.root),
        )
        winners = measure_winners(tasks, job.target, runner, job.settings, folder, job.finalists)
    run.artifact(folder / TRIALS_FILE)
    run.artifact(folder / WINNERS_FOLDER / WINNERS_FILE)
    run.metrics({f"tune/run_seconds/{winner.task.workload.name}": winner.run_seconds for winner in winners})
    Console().print(winners_table(job.name, winners))
    logger.info("trials, TVM's database and winners: %s", folder)
    return winners


def winners_table(title: str, winners: Sequence[Winner]) -> Table:
    """One row a workload."""
    table = Table(title=f"{title}: winners", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("workload", overflow="fold")
    for head in ("times", "ms", "ms as a trial", "second, slower by", "noise", "checked"):
        table.add_column(head, justify="right")
    for winner in winners:
        second = winner.second_seconds
        table.add_row(
            Text(winner.task.workload.name),
            str(winner.task.weight),
            f"{1e3 * winner.run_seconds:.4g}",
            f"{1e3 * winner.trial_seconds:.4g}",
            "-" if second is None else f"{second / winner.run_seconds - 1:.1%}",
            f"{winner.noise:.1%}",
            "yes" if winner.checked else "no",
        )
    return table


def saved_network(request: Request, folder: Path) -> SavedNetwork:
    """The network on disk, extracted anew unless it is there already and the same."""
    from kernelcast.networks.isolation import save_network
    from kernelcast.networks.saved import read_network

    try:
        saved = read_network(folder)
    except (MissingInputError, MalformedDataError):
        return save_network(request, folder)
    # what a user's file holds may have changed
    return saved if saved.request == request and "file" not in request.arguments else save_network(request, folder)


@dataclass(frozen=True)
class Fusing:
    """The learned choice of what a network fuses.

    Attributes:
        saved: the network.
        space: what can be fused in it.
        predict: the model.
    """

    saved: SavedNetwork
    space: FusionSpace
    predict: Predictor

    @classmethod
    def of(cls, job: Job, saved: SavedNetwork) -> Fusing:
        """Looks for what is needed, before hours of tuning.

        Raises:
            ConfigError: the method has no trained model, or one that only ranks; the network was extracted unfused.
        """
        from kernelcast.networks.fusion_groups import read_fusion_space
        from kernelcast.tuning.fusion import model_predictor
        from kernelcast.tuning.methods import Trained
        from kernelcast.tuning.trained import TrainedModel

        if not isinstance(job.method, Trained):
            raise ConfigError(
                f"fusion=true needs a trained model, and {job.method.label} is none; take method=frozen or online"
            )
        model = TrainedModel.load(job.root / job.method.model, job.method.any_target)
        return cls(saved, read_fusion_space(saved), model_predictor(model, job.target))

    @property
    def tasks(self) -> list[Task]:
        """The network's kernels, and those of the operators that they are fused of."""
        from kernelcast.tuning.fusion import fusion_tasks

        return fusion_tasks(self.saved, self.space)

    def apart(self, schedules: Mapping[str, ChosenSchedule], folder: Path) -> tuple[str, ...]:
        """Keys of the fused kernels that the model takes apart; what it decided is printed and written."""
        from kernelcast.tuning.fusion import chosen_traces, decide_fusion
        from kernelcast.tuning.fusion_table import fusion_json, fusion_tables

        measured = {key: chosen.run_seconds for key, chosen in schedules.items()}
        choices = decide_fusion(self.saved, self.space, chosen_traces(schedules), self.predict, measured)
        write_json(folder / FUSION_FILE, fusion_json(choices))
        for table in fusion_tables(choices):
            Console().print(table)
        return choices.apart


def _others(job: Job, saved: SavedNetwork) -> dict[str, Deployment]:
    """What other methods and seeds made of the same network for the same target."""
    from kernelcast.tuning.deployment import read_deployment

    found = {}
    for path in sorted((job.folder / saved.name).glob(f"*@*/{DEPLOYED_FOLDER}")):
        if path.parent.name == job.name:
            continue
        deployment = read_deployment(path)
        if deployment.target == job.target:
            found[path.parent.name] = deployment
    return found


def _network_request(config: DictConfig) -> Request | None:
    """The network that is asked for; None where workloads are.

    Raises:
        ConfigError: several at once.
    """
    from kernelcast.stages.workloads import request_of

    if not config.network:
        return None
    if len(config.network) > 1:
        raise ConfigError(f"network: one at a time, not {', '.join(map(str, config.network))}; use -m network=A,B")
    [(name, node)] = config.network.items()
    return request_of(f"network.{name}", str(name), node)
