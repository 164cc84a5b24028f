"""Which workloads are asked for."""

import dataclasses
from collections import Counter

import pytest

from kernelcast.errors import ConfigError
from kernelcast.graphs.dataset.labels import Labelling
from kernelcast.graphs.dataset.selection import Choice, Folder, choose_rows, distinct_targets
from kernelcast.records import Measurements


@pytest.fixture
def of_networks(measurements: Measurements) -> Measurements:
    """Each workload in a network of its own, the first two in `both` as well."""
    workloads = {
        key: dataclasses.replace(workload, networks={workload.name: 1, **({"both": 2} if number < 2 else {})})
        for number, (key, workload) in enumerate(measurements.workloads.items())
    }
    return dataclasses.replace(measurements, workloads=workloads)


def chosen(measurements: Measurements, **asked: tuple[str, ...]) -> tuple[set[str], Counter[str]]:
    """Names of the workloads of the rows that are taken, and what was dropped."""
    folder, dropped = Folder(measurements, "hash"), Counter()
    parts = choose_rows(
        [folder], distinct_targets([folder]), Choice(Labelling("minimum"), **asked), needs_modules=True, dropped=dropped
    )
    return {measurements.workloads[key].name for part in parts for key in part.workload_key.tolist()}, dropped


def test_workloads_of_some_networks_alone(of_networks: Measurements) -> None:
    names = [workload.name for workload in of_networks.workloads.values()]
    taken, dropped = chosen(of_networks, networks=("both",))
    assert taken == {*names[:2]}
    others = [row for row in of_networks.table["workload_name"].to_pylist() if row not in names[:2]]
    assert dropped == {"other_network": len(others)}


def test_workloads_of_some_kinds_alone(of_networks: Measurements) -> None:
    taken, dropped = chosen(of_networks, kinds=("conv*",))
    assert taken
    assert all(
        workload.kind.startswith("conv") == (workload.name in taken) for workload in of_networks.workloads.values()
    )
    assert set(dropped) == {"other_kind"}
    both, _ = chosen(of_networks, kinds=("conv*",), networks=(*taken,))
    assert both == taken


@pytest.mark.parametrize(("asked", "value"), [("networks", "vgg"), ("kinds", "lstm*")])
def test_what_was_not_measured_names_what_was(of_networks: Measurements, asked: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"only_{asked}: no measured workload is of .*; choose from \w+"):
        chosen(of_networks, **{asked: (value,)})
