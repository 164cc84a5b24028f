"""A network on disk: everything that compiling and checking it needs, and no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.decoding import record_of
from kernelcast.errors import MalformedDataError
from kernelcast.files import read_json, read_text, require
from kernelcast.networks.requests import Request
from kernelcast.records import Workload
from kernelcast.tvm_compat import parse_module

SAVED_VERSION = 1
"""Version of the folder; a change that another kernelcast cannot read raises it."""

NETWORK_FILE = "network.json"
MODULE_FILE = "module.json"
"""The imported network, before any pass, weights included: TVM's JSON has them in base64, 4/3 of their size."""

WORKLOADS_FILE = "workloads.json"
EXAMPLE_FILE = "example.npz"
"""`input_0`, `input_1`, ... and what torch makes of them, `output_0`, ...; bfloat16 as its bits, in int16."""


@dataclass(frozen=True)
class Tensor:
    """One input or output of a network."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class SavedNetwork:
    """A network that `isolation.save_network` wrote.

    Attributes:
        folder: where it is.
        request: what it was made from.
        inputs: what it takes, in order.
        outputs: what it gives, in order.
        workloads: its kernels, with how often it runs each in `Workload.networks[request.label]`.
        left_out: a line for each kernel that cannot be tuned.
    """

    folder: Path
    request: Request
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    workloads: tuple[Workload, ...]
    left_out: tuple[str, ...]

    @property
    def name(self) -> str:
        """The key in `Workload.networks`."""
        return self.request.label

    def module(self) -> Any:
        """The imported network as a Relax module.

        Raises:
            MalformedDataError: the file is torn.
        """
        # not kept in memory, as small modules are
        return parse_module.__wrapped__(read_text(self.folder / MODULE_FILE, "tune"))

    def example(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The example's inputs, and torch's outputs on them."""
        return read_example(self.folder / EXAMPLE_FILE, self.inputs, self.outputs)


def read_network(folder: Path) -> SavedNetwork:
    """Reads a saved network; its module and its example only when they are asked for.

    Raises:
        MissingInputError: there is none.
        MalformedDataError: it is torn, or of another version.
    """
    stored = read_json(folder / NETWORK_FILE, "tune")
    try:
        if stored["version"] != SAVED_VERSION:
            raise ValueError(f"version {stored['version']}, this kernelcast reads {SAVED_VERSION}")
        return SavedNetwork(
            folder,
            Request(**stored["request"]),
            tensors(stored["inputs"]),
            tensors(stored["outputs"]),
            tuple(record_of(Workload, entry) for entry in read_json(folder / WORKLOADS_FILE, "tune")),
            tuple(stored["left_out"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedDataError(
            f"{folder / NETWORK_FILE} is no saved network ({error}); remove {folder} and extract the network again"
        ) from error


def tensors(entries: Sequence[dict[str, Any]]) -> tuple[Tensor, ...]:
    """Tensors from JSON."""
    return tuple(Tensor(str(entry["name"]), tuple(entry["shape"]), str(entry["dtype"])) for entry in entries)


def read_example(
    path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Inputs and outputs from an `EXAMPLE_FILE`.

    Raises:
        MissingInputError: there is none.
        MalformedDataError: it is torn, or holds something else.
    """
    require(path, "tune")
    try:
        with np.load(path, allow_pickle=False) as stored:
            return (
                [_typed(stored[f"input_{number}"], tensor) for number, tensor in enumerate(inputs)],
                [_typed(stored[f"output_{number}"], tensor) for number, tensor in enumerate(outputs)],
            )
    except (ValueError, KeyError, OSError, EOFError) as error:
        raise MalformedDataError(f"{path} cannot be read ({error}); extract the network again") from error


def _typed(values: np.ndarray, tensor: Tensor) -> np.ndarray:
    if tensor.dtype == "bfloat16":
        import ml_dtypes

        values = values.view(ml_dtypes.bfloat16)
    if str(values.dtype) != tensor.dtype or values.shape != tensor.shape:
        raise ValueError(f"{tensor.name} is {values.dtype}{list(values.shape)}")
    return values
