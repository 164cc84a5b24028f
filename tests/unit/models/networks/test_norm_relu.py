import math

import pytest
import torch
from torch import nn

from kernelcast.models.networks.norm_relu import norm_relu, norm_relu_on_device


def layer(width, dtype=torch.float64):
    norm = nn.LayerNorm(width, dtype=dtype)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


@pytest.mark.parametrize("rows", [0, 1, 37])
@pytest.mark.parametrize("with_residual", [True, False])
def test_the_same_as_modules_of_torch_with_its_gradients(rows, with_residual):
    torch.manual_seed(0)
    norm = layer(13)
    values = torch.randn(rows, 13, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(rows, 13, dtype=torch.float64, requires_grad=True) if with_residual else None
    weights = torch.randn(rows, 13, dtype=torch.float64)
    found = []
    for way in (norm_relu, norm_relu_on_device):
        out = way(values, norm, 0.0, residual)
        inputs = [values, norm.weight, norm.bias, *([residual] if with_residual else [])]
        found.append([out, *torch.autograd.grad((out * weights).sum(), inputs)])
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other)


def test_gradients_with_dropout_are_those_of_differences():
    norm = layer(6)
    values, residual = torch.randn(2, 5, 6, dtype=torch.float64).requires_grad_().unbind()

    def seeded(*inputs):
        torch.manual_seed(3)
        return norm_relu(inputs[0], norm, 0.4, inputs[1])

    assert torch.autograd.gradcheck(seeded, (values, residual))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_is_left_out_and_the_rest_keeps_the_expectation(share):
    torch.manual_seed(0)
    norm = nn.LayerNorm(99)
    nn.init.zeros_(norm.weight)
    nn.init.ones_(norm.bias)
    out = norm_relu(torch.randn(1001, 99), norm, share).detach()
    kept = out != 0
    assert abs(1 - kept.float().mean().item() - share) < 0.005
    torch.testing.assert_close(out[kept], torch.full((int(kept.sum()),), 1 / (1 - share)))
    # neighbours in a row, in a column and in the next draw are independent
    again = norm_relu(torch.randn(1001, 99), norm, share) != 0
    for one, other in ((kept[:, :-1], kept[:, 1:]), (kept[:-1], kept[1:]), (kept, again)):
        assert abs((one & other).float().mean().item() - (1 - share) ** 2) < 0.01


def test_equal_seeds_leave_out_the_same_and_evaluation_draws_nothing():
    norm, values = nn.LayerNorm(5), torch.randn(30, 5)
    torch.manual_seed(4)
    first = norm_relu(values, norm, 0.5)
    assert not torch.equal(first, norm_relu(values, norm, 0.5))
    torch.manual_seed(4)
    state = torch.get_rng_state()
    norm_relu(values, norm)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first, norm_relu(values, norm, 0.5))


def test_all_may_be_left_out():
    assert not norm_relu(torch.randn(4, 5), nn.LayerNorm(5), 1.0).any()


def test_what_is_no_number_stays_none():
    values = torch.randn(3, 5)
    values[1, 2] = math.nan
    out = norm_relu(values, nn.LayerNorm(5))
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()


def test_mixed_precision_normalises_in_full_precision():
    norm, values = layer(8, torch.float32), torch.randn(20, 8).bfloat16().requires_grad_()
    out = norm_relu(values, norm)
    torch.testing.assert_close(out, torch.relu(norm(values.float())))
    (gradient,) = torch.autograd.grad(out.sum(), values)
    assert gradient.dtype == torch.bfloat16
