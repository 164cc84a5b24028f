import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.models.networks.attention import SelfAttention, Windows, positions
from kernelcast.models.networks.reductions import (
    LEARNED,
    POOLINGS,
    Elements,
    LSTMReduction,
    Reductions,
    ReductionSettings,
    pool_max,
    pool_mean,
    pool_root,
    pool_sum,
)
from kernelcast.models.networks.segments import owners

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=6)
WIDTH = 4


def elements_of(counts):
    counts = torch.tensor(counts)
    return Elements(owners(counts), counts)


def values_of(counts):
    return torch.randn(sum(counts), WIDTH)


def reductions(window=256):
    torch.manual_seed(0)
    names = (*POOLINGS, *LEARNED)
    return Reductions(WIDTH, names, ReductionSettings(layers=2, heads=2, window=window), dropout=0.1).eval()


def test_poolings_by_hand():
    elements = elements_of([2, 0, 2])
    nodes = torch.tensor([[1.0], [3.0], [-5.0], [-7.0]])
    assert pool_mean(nodes, elements).tolist() == [[2.0], [0.0], [-6.0]]
    assert pool_max(nodes, elements).tolist() == [[3.0], [0.0], [-5.0]]
    assert pool_root(nodes, elements).tolist() == [[1.0], [0.0], [-5.0]]
    torch.testing.assert_close(pool_sum(nodes, elements), torch.tensor([[0.4], [0.0], [-1.2]]))


@given(counts=COUNTS)
@settings(max_examples=25, deadline=None)
def test_the_lstm_of_a_batch_is_that_of_each_program(counts):
    torch.manual_seed(1)
    reduction, values = LSTMReduction(WIDTH, 2), values_of(counts)
    with torch.no_grad():
        expected = [
            reduction.lstm(part)[1][0][-1] if len(part) else torch.zeros(WIDTH) for part in torch.split(values, counts)
        ]
        torch.testing.assert_close(reduction(values, elements_of(counts)), torch.stack(expected), rtol=1e-5, atol=1e-5)


@given(counts=COUNTS, window=st.integers(1, 10))
@settings(max_examples=25, deadline=None)
def test_attention_in_a_batch_is_that_of_each_window_alone(counts, window):
    torch.manual_seed(1)
    attention, values = SelfAttention(WIDTH, 2, 2, 0.1, window).eval(), values_of(counts)
    expected = []
    with torch.no_grad():
        for part in torch.split(values, counts):
            for piece in torch.split(part + positions(torch.arange(len(part)), WIDTH), window):
                padded = piece[None]
                for layer in attention.layers:
                    padded = layer(padded) if len(piece) else padded
                expected.append(padded[0])
        found = attention(values, torch.tensor(counts))
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-5)


@given(counts=COUNTS, window=st.integers(1, 10))
@settings(max_examples=25, deadline=None)
def test_windows_hold_each_element_once_and_nothing_else(counts, window):
    values = values_of(counts)
    if not len(values):
        return
    windows = Windows.of(torch.tensor(counts), window)
    padded, absent = windows.pad(values), windows.absent()
    assert torch.equal(windows.unpad(padded), values)
    assert int((~absent).sum()) == len(values)
    assert not padded[absent].any()
    # memory: no more than a window for each begun one, never the square of the longest program
    assert padded.shape[0] == sum(-(-count // window) for count in counts)
    assert padded.shape[1] <= min(window, max(counts))
    assert not absent.all(dim=1).any()


@given(counts=COUNTS, company=COUNTS, window=st.sampled_from([3, 256]))
@settings(max_examples=25, deadline=None)
def test_company_changes_no_reduction(counts, company, window):
    module, values, others = reductions(window), values_of(counts), values_of(company)
    with torch.no_grad():
        alone = module(values, elements_of(counts))
        first = module(torch.cat([values, others]), elements_of(counts + company))[: len(counts)]
        last = module(torch.cat([others, values]), elements_of(company + counts))[len(company) :]
    torch.testing.assert_close(first, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last, alone, rtol=1e-4, atol=1e-5)


def test_no_elements_at_all_reduce_to_zeros():
    reduced = reductions()(values_of([0, 0]), elements_of([0, 0]))
    assert reduced.shape == (2, WIDTH * 6)
    assert not reduced.any()


@pytest.mark.parametrize("name", LEARNED)
def test_the_order_of_the_elements_counts(name):
    torch.manual_seed(0)
    module = Reductions(WIDTH, [name], ReductionSettings(), 0.0).eval()
    values = torch.randn(5, WIDTH)
    assert not torch.allclose(module(values, elements_of([5])), module(values.flip(0), elements_of([5])))


def test_a_program_that_attention_cuts_is_said_once(caplog):
    attention = SelfAttention(WIDTH, 2, 1, 0.0, window=3).eval()
    with caplog.at_level(logging.INFO, logger="kernelcast.models.networks.attention"):
        attention(values_of([3]), torch.tensor([3]))
        assert caplog.messages == []
        attention(values_of([7]), torch.tensor([7]))
        attention(values_of([8]), torch.tensor([8]))
    assert caplog.messages == ["a program has 7 elements: attention goes by windows of 3 of them"]
