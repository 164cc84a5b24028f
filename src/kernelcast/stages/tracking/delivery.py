"""What a run has to tell, as plain data, and how the store is told of it.

A call is a JSON object: `call` names it, the rest are its arguments with the times at which things happened. So one
that a server could not take is kept in a file and told later, and to tell it twice changes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST_METRICS = 1000
MOST_PARAMS = 100
"""That MLflow takes in one call."""

ERROR_TAG = "kernelcast.error"
"""Tag of a run that ended badly: why."""

Call = Mapping[str, Any]


class Delivery:
    """Tells the store about one run.

    Args:
        client: of the store.
        run_id: of the run there.
        resumed: whether the run was begun by an earlier process: what it has of a curve is not told again.
    """

    def __init__(self, client: MlflowClient, run_id: str, resumed: bool = False) -> None:
        self._client = client
        self._run_id = run_id
        self._known = known_steps(client, run_id) if resumed else {}

    def __call__(self, call: Call, source: Path | None = None) -> None:
        """Tells one call; `source` is the file or folder of an artifact."""
        from mlflow.entities import Metric, Param, RunTag

        match call["call"]:
            case "metrics":
                points = [Metric(*point) for point in call["points"] if point[3] not in self._known.get(point[0], ())]
                for part in _batches(points, MOST_METRICS):
                    self._client.log_batch(self._run_id, metrics=part)
            case "params":
                for part in _batches([Param(*each) for each in call["values"].items()], MOST_PARAMS):
                    self._client.log_batch(self._run_id, params=part)
            case "tags":
                self._client.log_batch(self._run_id, tags=[RunTag(*each) for each in call["values"].items()])
            case "dataset":
                self._client.log_inputs(self._run_id, datasets=[_dataset(call)])
            case "artifact":
                assert source is not None
                store = self._client.log_artifacts if source.is_dir() else self._client.log_artifact
                store(self._run_id, str(source), call["folder"])
            case "resumed":
                self._resume()
            case "end":
                self._client.set_terminated(self._run_id, call["status"], call["time"])

    def _resume(self) -> None:
        from mlflow.exceptions import MlflowException

        self._client.update_run(self._run_id, status="RUNNING")
        self._known = known_steps(self._client, self._run_id)
        try:
            # why the earlier process ended; its trace stays in error.txt
            self._client.delete_tag(self._run_id, ERROR_TAG)
        except MlflowException:
            # a killed process has told nothing
            return


def merged(calls: Sequence[Call]) -> Iterable[list[Call]]:
    """The calls in their order, those about metrics that follow each other as one."""
    for what, group in itertools.groupby(calls, lambda call: call["call"]):
        alike = list(group)
        yield from [alike] if what == "metrics" else ([each] for each in alike)


def as_one(calls: Sequence[Call]) -> Call:
    """The call that says what all of them do; see `merged`."""
    if len(calls) == 1:
        return calls[0]
    return {"call": "metrics", "points": [point for call in calls for point in call["points"]]}


def known_steps(client: MlflowClient, run_id: str) -> dict[str, set[int]]:
    """The steps that the run has of every metric."""
    names = client.get_run(run_id).data.metrics
    return {name: {point.step for point in client.get_metric_history(run_id, name)} for name in names}


def _dataset(call: Call) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(call["name"], call["digest"], "local", call["source"], profile=call["profile"])
    return DatasetInput(dataset, tags=[InputTag("mlflow.data.context", call["context"])])


def _batches(values: list[Any], size: int) -> Iterable[list[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))
