"""Draws what the models see of one program, or of two side by side."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.files import atomic_file

if TYPE_CHECKING:
    from kernelcast.graphs.programs import Programs
    from kernelcast.records import Measurements

logger = logging.getLogger(__name__)


def look(config: DictConfig) -> None:
    """Writes the page of the programs that `config` (schema `LookConfig`) names.

    Raises:
        ConfigError: there is no such program; the message lists what comes near.
        MissingInputError: `graphs` has not run.
        MalformedDataError: its files are torn or of another version.
    """
    from kernelcast.evaluation.program_page.choosing import Wanted, find_program, is_rank
    from kernelcast.evaluation.program_page.page import Shown, page_data, render_page
    from kernelcast.graphs.dataset.store import read_description, read_programs

    graphs = Path(config.paths.graphs)
    program, other = typed(config, "program"), typed(config, "other")
    programs, description = read_programs(graphs), read_description(graphs)
    rows = [find_program(programs, Wanted(program, config.workload_name, config.rank))]
    if other is not None:
        name = programs.workload_names[programs.workload[rows[0]]]
        wanted = Wanted(workload=name, rank=other) if is_rank(other) else Wanted(program=other)
        rows.append(find_program(programs, wanted))
        if rows[0] == rows[1]:
            raise ConfigError(f"other={other} is the program that it would be compared with; name another one")
    path = output_of(config, [str(programs.program_key[row]) for row in rows])
    parts = split_parts(graphs, rows)
    sources, reason = tensorir(config, programs, rows)
    shown = [Shown(row, part, source) for row, part, source in zip(rows, parts, sources, strict=True)]
    page = render_page(page_data(programs, description, shown, reason))
    with atomic_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    for row in rows:
        logger.info(
            "program %s of %s: %.4g ms",
            programs.program_key[row],
            programs.workload_names[programs.workload[row]],
            1e3 * np.exp(programs.log_seconds[row]),
        )
    if reason:
        logger.info("%s", reason)
    logger.info("look: %s", path)


def typed(config: DictConfig, name: str) -> str | None:
    """The value of `name` as it was typed: Hydra takes a key such as 12e45 for a number."""
    value: str | None = config[name]
    if value is not None and HydraConfig.initialized():
        for override in HydraConfig.get().overrides.task:
            key, _, text = override.partition("=")
            if key == name:
                value = text.strip("'\"")
    return value


def output_of(config: DictConfig, keys: list[str]) -> Path:
    """Where the page goes.

    Raises:
        ConfigError: that is no file.
    """
    if config.output is None:
        return Path(config.paths.look) / f"{'_'.join(keys)}.html"
    if not config.output.strip():
        raise ConfigError("output is empty; name a file, or leave it out for one in data/look")
    path = Path(config.output)
    if path.exists() and not path.is_file():
        raise ConfigError(f"output={path} is no file; name one, for example output={path / 'program.html'}")
    return path


def split_parts(graphs: Path, rows: list[int]) -> list[dict[str, str]]:
    """Which part of which split each row is in; only the splits that it is in."""
    from kernelcast.graphs.splits import read_split, split_names

    found: list[dict[str, str]] = [{} for _ in rows]
    for name in split_names(graphs):
        split = read_split(graphs, name)
        left_out = [(f"left out ({reason})", numbers) for reason, numbers in split.left_out.items()]
        for part, numbers in [*split.parts(), *left_out]:
            for row, parts in zip(rows, found, strict=True):
                if row in numbers:
                    parts[name] = part
    return found


def tensorir(config: DictConfig, programs: Programs, rows: list[int]) -> tuple[list[str | None], str]:
    """The TensorIR of each program as text, None without; and why one has none.

    A page without it is of use too, so whatever is wrong with measurements is a reason and no error.
    """
    from kernelcast.records import read_measurements

    sources: list[str | None] = [None] * len(rows)
    if not config.source:
        return sources, ""
    reason = ""
    try:
        folders = [read_measurements(Path(config.paths.root, folder)) for folder in config.measurements]
        for place, row in enumerate(rows):
            sources[place] = _script(folders, str(programs.program_key[row]))
    except KernelcastError as error:
        reason = f"No TensorIR: {error}"
    return sources, reason


def _script(folders: list[Measurements], key: str) -> str:
    """The scheduled module of a program as TVM prints it."""
    from kernelcast.tvm_compat import prepare_for, runnable_module, scheduled_module

    for measurements in folders:
        found = np.flatnonzero(pc.equal(measurements.table["program_key"], key).to_numpy())
        if not len(found):
            continue
        row: dict[str, Any] = measurements.table.slice(int(found[0]), 1).to_pylist()[0]
        workload = measurements.workloads.get(row["workload_key"])
        if workload is None or not workload.loadable:
            raise ConfigError(f"this TVM cannot load the workload of {key}; other versions' programs have a trace only")
        prepare_for(measurements.campaign.target)
        return str(runnable_module(scheduled_module(workload, row["trace"])).script())
    raise ConfigError(f"{key} is not among the measurements; name its folder with measurements=[FOLDER]")
