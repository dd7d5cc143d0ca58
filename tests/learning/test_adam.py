"""Adam is torch's, step for step."""

import pytest

from crowdfl.learning.models.adam import Adam

torch = pytest.importorskip("torch")


def test_every_step_is_torchs():
    """The same weights to the last bit; a parameter without a gradient stays as it is."""
    torch.manual_seed(1)
    start = [torch.randn(5, 3), torch.randn(3), torch.randn(2)]
    ours, theirs = ([torch.nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    mine, reference = Adam(ours, 0.005), torch.optim.Adam(theirs, lr=0.005)
    for number in range(50):
        for a, b in zip(ours[:2], theirs[:2], strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        mine.step()
        reference.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)), number
    assert torch.equal(ours[2], start[2])
    mine.forget()
    assert all(parameter.grad is None for parameter in ours)
