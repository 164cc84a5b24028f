"""The stage `predict`: what a trained model says of programs that nobody has run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.text import Text

from kernelcast.errors import ConfigError
from kernelcast.stages.look import typed

if TYPE_CHECKING:
    from kernelcast.prediction import Predictor
    from kernelcast.prediction.answer import Answer
    from kernelcast.prediction.names import InPython
    from kernelcast.prediction.subjects import Subject

logger = logging.getLogger(__name__)

WIDEST = 1000
"""Columns of a line in a file."""


def predict(config: DictConfig) -> None:
    """Predicts what `config` (schema `PredictConfig`) names, prints the best, and writes all of it where that is asked.

    Raises:
        ConfigError: nothing or too much is asked, or the model knows nothing of its target.
        MissingInputError: there is no such model or input.
        MalformedDataError: a file cannot be read, or none of the programs can be predicted.
        StorageError: an output would replace something else.
    """
    from kernelcast.measurement.settings import require_positive_integer
    from kernelcast.prediction.answer import check_output, write_output
    from kernelcast.prediction.asking import is_python
    from kernelcast.prediction.names import check_python
    from kernelcast.prediction.schedules import check_schedules_folder, write_schedules
    from kernelcast.stages.loading import load_predictor

    output, schedules = _path(config, "output"), _path(config, "schedules")
    _check_asked(config)
    require_positive_integer("top", config.top)
    if config.samples != 0:
        require_positive_integer("samples", config.samples)
    if output is not None:
        check_output(output)
    if schedules is not None:
        check_schedules_folder(schedules)
    code, text = _in_python(config), typed(config, "input")
    if text is not None and is_python(Path(text).expanduser()):
        # before the model is loaded
        check_python(Path(text), code)
    predictor = load_predictor(
        typed(config, "model_name") or "", config.tracking.uri, config.any_target, Path(config.paths.root)
    )
    answer = _answer(config, predictor, text, code)
    show(answer, config.top)
    logger.info("predicted by %s for %s", predictor.source, "; ".join(map(json.dumps, answer.targets)))
    if output is not None:
        write_output(answer, output)
        logger.info("%d predictions: %s", len(answer.subjects), output)
    if schedules is not None:
        count = write_schedules(answer, schedules, config.top, predictor.source)
        logger.info("%d schedules, with predicted times, for TVM's JSONDatabase: %s", count, schedules)


def show(answer: Answer, top: int) -> None:
    """Prints what is to be seen of an answer."""
    from kernelcast.prediction.terminal import heading, notes, table

    console, shown = Console(), table(answer, top)
    if not console.is_terminal:
        # a line is a line in a file: whoever looks for a name there finds it whole
        widest = console.measure(shown, options=console.options.update(width=WIDEST)).maximum
        console.width = max(console.width, widest)
    console.print(Text(heading(answer, top), style="bold"), soft_wrap=True)
    console.print(shown)
    for line in notes(answer):
        console.print(Text(line), soft_wrap=True)


def _in_python(config: DictConfig) -> InPython:
    from kernelcast.prediction.names import InPython

    return InPython(config.module, config.example, config.function, _mapping(config, "arguments"), config.trust_python)


def _answer(config: DictConfig, predictor: Predictor, text: str | None, code: InPython) -> Answer:
    from kernelcast.prediction.asking import asked_by_text
    from kernelcast.prediction.graphs import answer_of_graphs
    from kernelcast.stages.graphs import progress_of

    target = _mapping(config, "target")
    if target:
        # before minutes of extraction
        predictor.target(target)
    subjects: list[Subject] | Path | None = _of_configuration(config, text)
    if subjects is None:
        assert text is not None, "either input or a group is there"
        subjects = asked_by_text(text, _mapping(config, "shape"), code, predictor.trained.stored_target)
    if isinstance(subjects, Path):
        return answer_of_graphs(predictor.trained, subjects)
    with progress_of("predict") as progress:
        return predictor.answer(subjects, samples=config.samples, seed=config.seed, target=target, progress=progress)


def _of_configuration(config: DictConfig, text: str | None) -> list[Subject] | None:
    """The workloads of `workload`, of `network` or of the file in conf/workload that `input` names; None for others."""
    from kernelcast.prediction.names import network_names, operator_names
    from kernelcast.prediction.subjects import Subject
    from kernelcast.stages.composing import composed, conf_folder
    from kernelcast.stages.workloads import make_workloads

    node = config.workload or config.network
    if not node:
        assert text is not None, "see _check_asked"
        named = text in operator_names() or text in network_names() or Path(text).exists()
        if named or not text.isidentifier() or not (conf_folder() / "workload" / f"{text}.yaml").is_file():
            return None
        sizes = [f"workload.{text}.{key}={value}" for key, value in _mapping(config, "shape").items()]
        node = composed("predict", [f"workload={text}", *sizes], config).workload
    return [Subject(workload) for workload in make_workloads(node)]


def _check_asked(config: DictConfig) -> None:
    asked = [name for name in ("input", "workload", "network") if config[name]]
    if len(asked) == 1:
        return
    raise ConfigError(
        f"name one thing to predict, not {' and '.join(asked)}"
        if asked
        else "name what to predict: input=FILE or input=NAME (an operator with its shape, or a network), or "
        "workload=NAME or network=NAME (a file of conf/); see `python scripts/predict.py --help`"
    )


def _mapping(config: DictConfig, key: str) -> dict[str, Any]:
    node = config[key]
    if node is None:
        return {}
    plain = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    if not isinstance(plain, Mapping):
        raise ConfigError(f"{key}={plain}: write names and values: '{key}={{rows: 512, columns: 512}}'")
    return {str(name): value for name, value in plain.items()}


def _path(config: DictConfig, key: str) -> Path | None:
    text = typed(config, key)
    if text is not None and not text.strip():
        raise ConfigError(f"{key} is empty; name a place, or leave it out")
    return None if text is None else Path(text).expanduser()
