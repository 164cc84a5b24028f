"""What an experiment found, with all that a reader needs to judge and to repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import MissingInputError
from kernelcast.stages.experiment_plan import Plan, Training

if TYPE_CHECKING:
    from kernelcast.evaluation.experiment_record import Record, RecordedSplit
    from kernelcast.evaluation.results import Results


def record_of(plan: Plan, config: DictConfig, failed: Mapping[Training, str]) -> Record:
    """The record of what `evaluate` wrote for every variant.

    Raises:
        MissingInputError: no training succeeded.
    """
    from kernelcast.evaluation.experiment_record import RECORD_VERSION, Record
    from kernelcast.evaluation.results import read_results
    from kernelcast.graphs.dataset.store import read_data_hash, read_description, read_programs
    from kernelcast.measurement.host import cpu_identity
    from kernelcast.stages.tracking import git_state, library_versions

    trained = [training for training in plan.trainings if training not in failed]
    used = {training.variant.name: training.variant for training in plan.trainings if training in trained}
    if not used:
        raise MissingInputError(
            f"none of the {len(plan.trainings)} trainings of experiment {plan.name} succeeded; see "
            f"{plan.folder / 'logs'}"
        )
    found = {name: read_results(variant.evaluation) for name, variant in used.items()}
    first = next(iter(used.values()))
    programs, description = read_programs(first.graphs), read_description(first.graphs)
    revision, dirty = git_state(Path(config.paths.root))
    some = next(iter(found.values()))
    settings: dict[str, Any] = OmegaConf.to_container(config, resolve=True, enum_to_str=True)  # type: ignore[assignment]
    return Record(
        version=RECORD_VERSION,
        name=plan.name,
        title=settings["title"],
        question=settings["question"],
        source=settings["source"],
        command=f"python scripts/experiment.py experiment={plan.name}",
        date=datetime.now(UTC).date().isoformat(),
        measured_on=tuple(
            dict.fromkeys(
                f"{without_flags(target.host) or 'an unknown machine'} ({target.target['kind']})"
                for target in description.targets
            )
        ),
        trained_on=without_flags(cpu_identity()),
        programs=len(programs),
        workloads=len({*programs.workload.tolist()}),
        data={name: read_data_hash(variant.graphs) for name, variant in used.items()},
        seeds=tuple(settings["seeds"]),
        confidence=some.confidence,
        label=some.label,
        versions=library_versions(),
        revision=revision[:12] + ("+" if dirty else ""),
        metrics=tuple(settings["metrics"]),
        columns=settings["columns"],
        splits=tuple(split for name in plan.splits if (split := joined_split(name, plan, trained, found, settings))),
        failed=(*failures(failed), *unevaluated(found, failed)),
    )


def joined_split(
    name: str, plan: Plan, trained: list[Training], found: Mapping[str, Results], settings: Mapping[str, Any]
) -> RecordedSplit | None:
    """The figures of one split, of all variants of the graphs; None where no training on it succeeded."""
    from kernelcast.evaluation.experiment_record import recorded_split

    parts = [split for each in found.values() for split in each.splits if split.split == name]
    seeds = Counter(training.label for training in trained if training.split == name)
    return recorded_split(parts, plan.labels, seeds, settings["metrics"]) if parts else None


def failures(failed: Mapping[Training, str]) -> tuple[str, ...]:
    """A line for each row and split of which trainings failed."""
    grouped: dict[tuple[str, str, str], list[int]] = {}
    for training, reason in failed.items():
        grouped.setdefault((training.label, training.split, reason), []).append(training.seed)
    return tuple(
        f"{label} on {split}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}: {reason}"
        for (label, split, reason), seeds in sorted(grouped.items())
    )


def unevaluated(found: Mapping[str, Results], failed: Mapping[Training, str]) -> tuple[str, ...]:
    """A line for each model that was trained and could not be scored."""
    known = {(training.split, name) for training in failed for name in (training.label, training.name)}
    return tuple(
        f"{entry.model} on {entry.split}: {entry.reason}"
        for each in found.values()
        for entry in each.missing
        if (entry.split, entry.model) not in known
    )


def without_flags(processor: str) -> str:
    """What `cpu_identity` says without the long list of instruction sets at its end."""
    name, _, last = processor.rpartition(", ")
    return name if name and ("sse" in last or "asimd" in last) else processor
