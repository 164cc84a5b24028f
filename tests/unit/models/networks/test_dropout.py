import pytest
import torch

from kernelcast.models.networks.dropout import ReLUDropout


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_is_left_out_and_the_rest_keeps_the_expectation(share):
    torch.manual_seed(0)
    out = ReLUDropout(share)(torch.ones(1001, 99))
    kept = out != 0
    assert abs(1 - kept.float().mean().item() - share) < 0.005
    assert abs(out.mean().item() - 1) < 0.02
    torch.testing.assert_close(out[kept], torch.full((int(kept.sum()),), 1 / (1 - share)), rtol=1e-3, atol=0)
    # neighbours share a draw and are independent all the same
    left, right = kept[:, :-1].float(), kept[:, 1:].float()
    assert abs((left * right).mean().item() - (1 - share) ** 2) < 0.01


def test_the_gradient_goes_where_a_value_came_through():
    torch.manual_seed(0)
    values = torch.randn(50, 7, requires_grad=True)
    out = ReLUDropout(0.25)(values)
    weights = torch.randn(50, 7)
    (gradient,) = torch.autograd.grad((out * weights).sum(), values)
    torch.testing.assert_close(gradient, torch.where(out > 0, weights / 0.75, 0.0))
    assert ((values > 0) & (out == 0)).any()


def test_only_a_relu_outside_training_and_without_a_share():
    values = torch.randn(20, 3)
    assert torch.equal(ReLUDropout(0.3).eval()(values), torch.relu(values))
    assert torch.equal(ReLUDropout(0.0)(values), torch.relu(values))


def test_equal_seeds_leave_out_the_same():
    layer, values = ReLUDropout(0.5), torch.ones(30, 5)
    torch.manual_seed(4)
    first = layer(values)
    assert not torch.equal(first, layer(values))
    torch.manual_seed(4)
    assert torch.equal(first, layer(values))
