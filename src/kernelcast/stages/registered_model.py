"""A registered cost model as MLflow serves it: MLflow runs this file where it loads the model ("models from code").

So nothing is pickled: the model folder next to it is read by `kernelcast.models.saved`, which checks every file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.files import read_json
from kernelcast.stages.registry import MODEL_ARTIFACT, TRAINING_ARTIFACT, trace_version

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.pyfunc.model import PythonModelContext

    from kernelcast.graphs.programs import Programs


class RegisteredModel(PythonModel):
    """Predicts the programs of a folder of graphs, or those of a table of schedule traces.

    The numbers are natural logarithms of seconds, or ranks within a workload: the tag `unit` of the version says which;
    lower is faster.
    """

    def load_context(self, context: PythonModelContext) -> None:
        """Reads the model and how it was trained."""
        from kernelcast.models.saved import load_model

        self.model = load_model(Path(context.artifacts[MODEL_ARTIFACT]))
        self.training = read_json(Path(context.artifacts[TRAINING_ARTIFACT]), "train")

    def predict(
        self, context: PythonModelContext | None, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One row a program: `workload`, `program`, `prediction`.

        Args:
            context: MLflow's.
            model_input: a column `graphs` with one folder that `scripts/graphs.py` wrote; or a row a program with the
                column `trace`, a schedule trace of MetaSchedule as JSON, and `workload`, any name of what it schedules.
            params: none.

        Raises:
            ConfigError: neither, or traces for a model that looks at more.
            MalformedDataError: the graphs have other features than the model was trained on.
        """
        import pandas as pd

        programs = self._programs(model_input)
        return pd.DataFrame(
            {
                "workload": [programs.workload_names[number] for number in programs.workload.tolist()],
                "program": programs.program_key.astype(np.str_),
                "prediction": self.model.predict(programs),
            }
        )

    def _programs(self, table: pd.DataFrame) -> Programs:
        from kernelcast.graphs.dataset.store import read_programs

        given = [name for name in ("graphs", "trace") if name in table and table[name].notna().any()]
        if given == ["trace"]:
            return self._of_traces(table)
        if given != ["graphs"] or len(table) != 1:
            raise ConfigError("give one folder in the column `graphs`, or one row a program in the column `trace`")
        return read_programs(Path(table["graphs"].iloc[0]))

    def _of_traces(self, table: pd.DataFrame) -> Programs:
        from kernelcast.files import json_hash
        from kernelcast.graphs.programs import Programs
        from kernelcast.graphs.trace import trace_view

        if self.training["trace_version"] != trace_version():
            raise MalformedDataError("the model was trained on traces as another kernelcast reads them; train it again")
        traces = table["trace"].tolist()
        names = table["workload"].tolist() if "workload" in table else [""] * len(traces)
        known, numbers = np.unique(np.array(names, dtype=np.str_), return_inverse=True)
        return Programs.in_memory(
            {"trace": trace_view(traces)},
            log_seconds=np.zeros(len(traces)),
            workload=numbers.astype(np.int32),
            workload_names=tuple(known.tolist()),
            program_key=np.array([json_hash(trace) for trace in traces]),
            feature_version=self.training["feature_version"],
        )


# what makes this file a model
set_model(RegisteredModel())
