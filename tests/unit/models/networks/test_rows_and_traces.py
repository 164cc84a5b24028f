"""The networks over rows and over steps: a plain loop gives the same, and programs may have none."""

import numpy as np
import pytest
import torch

from kernelcast.graphs.trace_columns import BLOCK_BUCKETS, COLUMN_NAMES, PRIMITIVES, block_code, word_code
from kernelcast.models.batching import Batch, Labels
from kernelcast.models.networks.mlp_segment import SegmentMLP
from kernelcast.models.networks.trace_transformer import CODES, TraceTransformer
from kernelcast.models.networks.widths import ViewWidths
from kernelcast.models.view_batches import RowBatch, StepBatch

COUNTS = [3, 0, 1, 7]
OWNER = torch.repeat_interleave(torch.arange(4), torch.tensor(COUNTS))


def batch_of(view, elements):
    nothing = np.zeros(len(elements.counts))
    return Batch({view: elements}, Labels.of(nothing, nothing.astype(np.int64)))


def segment_mlp():
    torch.manual_seed(0)
    widths = {"statements": ViewWidths(0, 0, 5, 0)}
    return SegmentMLP(widths=widths, view="statements", width=8, row_layers=2, program_layers=2, dropout=0.1).eval()


def trace_transformer(window=256, readout=("mean", "sum")):
    torch.manual_seed(0)
    widths = {"trace": ViewWidths(len(PRIMITIVES), 0, len(COLUMN_NAMES), 0)}
    settings = {"width": 8, "code_width": 3, "layers": 2, "heads": 2, "window": window, "readout": readout}
    return TraceTransformer(widths=widths, dropout=0.1, **settings).eval()


def steps_of(counts):
    counts = torch.tensor(counts)
    total = int(counts.sum())
    values = torch.randn(total, len(COLUMN_NAMES))
    for name, codes in CODES.items():
        values[:, COLUMN_NAMES.index(name)] = torch.randint(codes, (total,)).float()
    owner = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return StepBatch(torch.randint(len(PRIMITIVES), (total,)), values, owner, counts)


def test_rows_are_added_up_by_program():
    network, values = segment_mlp(), torch.randn(sum(COUNTS), 5)
    with torch.no_grad():
        found = network(batch_of("statements", RowBatch(values, OWNER, torch.tensor(COUNTS))))
        expected = []
        for rows in torch.split(values, COUNTS):
            total = torch.zeros(8)
            for row in rows:
                hidden = network.scale(row)
                for layer in network.row_layers:
                    hidden = torch.relu(layer(hidden))
                total = total + hidden
            program = network.norm(total)
            for layer in network.program_layers:
                program = program + torch.relu(layer(program))
            expected.append(network.output(program))
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-5, atol=1e-5)


def test_programs_without_rows_alone_are_no_error():
    nothing = RowBatch(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64), torch.tensor([0, 0]))
    found = segment_mlp()(batch_of("statements", nothing))
    assert found[0] == found[1]
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("readout", [["mean", "sum"], ["max", "root", "lstm", "transformer"]])
@pytest.mark.parametrize("window", [2, 256])
def test_a_trace_gets_the_same_number_alone(window, readout):
    network, steps = trace_transformer(window, readout), steps_of(COUNTS)
    parts = zip(torch.split(steps.primitive, COUNTS), torch.split(steps.values, COUNTS), COUNTS, strict=True)
    with torch.no_grad():
        together = network(batch_of("trace", steps))
        alone = [
            network(batch_of("trace", StepBatch(primitive, values, torch.zeros_like(primitive), torch.tensor([count]))))
            for primitive, values, count in parts
        ]
    assert torch.isfinite(together).all()
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("column", ["primitive", "word", "block", "after_postproc", "decision_6"])
def test_everything_that_a_step_says_reaches_the_prediction(column):
    network, steps = trace_transformer(), steps_of(COUNTS)
    with torch.no_grad():
        before = network(batch_of("trace", steps))
        changed = steps.primitive if column == "primitive" else steps.values[:, COLUMN_NAMES.index(column)]
        changed[1] = (changed[1] + 1) % 2
        after = network(batch_of("trace", steps))
    assert (before != after).tolist() == [True, False, False, False]


def test_every_code_that_a_trace_may_hold_has_an_embedding():
    assert word_code("x" * 1000) < CODES["word"]
    assert max(word_code(f"a name {number}") for number in range(300)) == CODES["word"] - 2
    assert max(block_code(f"a name {number}") for number in range(600)) == BLOCK_BUCKETS == CODES["block"] - 1
