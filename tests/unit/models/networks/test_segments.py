import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import scatter

from kernelcast.models.networks.segments import owners, places, segment_max, segment_mean, segment_sum

COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=8)


@given(counts=COUNTS, seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_each_program_is_reduced_by_itself(counts, seed):
    torch.manual_seed(seed)
    counts = torch.tensor(counts)
    # few different values, so that elements share the largest
    values = torch.randint(-3, 4, (int(counts.sum()), 3)).float().requires_grad_()
    owner = owners(counts)
    for reduced, one in (
        (segment_sum(values, owner, len(counts)), lambda part: part.sum(0)),
        (segment_mean(values, owner, counts), lambda part: part.mean(0)),
        (segment_max(values, owner, counts), lambda part: part.amax(0)),
    ):
        parts = torch.split(values, counts.tolist())
        expected = torch.stack([one(part) if len(part) else torch.zeros(3) for part in parts])
        torch.testing.assert_close(reduced, expected)
        weights = torch.randn_like(expected)
        if len(values):
            (mine,) = torch.autograd.grad((reduced * weights).sum(), values)
            (other,) = torch.autograd.grad((expected * weights).sum(), values)
            torch.testing.assert_close(mine, other)


def test_the_largest_value_has_the_gradient_of_pytorch_geometric():
    owner = torch.tensor([0, 0, 0, 1])
    values = torch.tensor([[2.0], [2.0], [1.0], [5.0]], requires_grad=True)
    theirs = scatter(values, owner, dim=0, reduce="max")
    ours = segment_max(values, owner, torch.tensor([3, 1]))
    (mine,) = torch.autograd.grad(ours.sum(), values)
    (other,) = torch.autograd.grad(theirs.sum(), values)
    assert mine.tolist() == other.tolist() == [[0.5], [0.5], [0.0], [1.0]]


def test_owners_and_places_by_hand():
    counts = torch.tensor([2, 0, 3])
    assert owners(counts).tolist() == [0, 0, 2, 2, 2]
    assert places(counts).tolist() == [0, 1, 0, 1, 2]
