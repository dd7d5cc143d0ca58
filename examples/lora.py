"""Adapters (LoRA) of a small transformer: only what trains is sent. Needs PyTorch: `python examples/lora.py`.

The transformer knows how to find the token that comes most often. People want the one that comes least often. Its own
weights stay as they are, on every device; the updates that leave one are those of the adapters.
"""

import torch
from torch import nn

import crowdfl

TOKENS, LENGTH, WIDTH, RANK = 4, 12, 32, 2


class Adapted(nn.Module):
    """A linear layer that is frozen, and the product of two thin matrices beside it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(RANK, layer.in_features) / layer.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(layer.out_features, RANK))

    def forward(self, inputs):
        return self.layer(inputs) + inputs @ self.lora_a.T @ self.lora_b.T


class Transformer(nn.Module):
    """One block of attention and one of two layers, over a few tokens."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.up, self.down, self.head = (
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Linear(2 * WIDTH, WIDTH),
            nn.Linear(WIDTH, TOKENS),
        )
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, sequences):
        hidden = self.tokens(sequences) + self.places
        normal = self.before(hidden)
        hidden = hidden + nn.functional.scaled_dot_product_attention(
            self.query(normal), self.key(normal), self.value(normal)
        )
        hidden = hidden + self.down(self.up(self.after(hidden)).relu())
        return self.head(hidden.mean(dim=1))


def sequences(count, seed, pick):
    """Random tokens, and the one that comes most (or least) often."""
    found = torch.randint(TOKENS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    return found, pick(nn.functional.one_hot(found, TOKENS).sum(dim=1), dim=1)


def fit(network, inputs, labels, steps):
    trained = [weights for weights in network.parameters() if weights.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()


def adapters(network):
    """The part of the `state_dict` that trains: this is the model, for CrowdFL."""
    return {name: weights.detach() for name, weights in network.named_parameters() if weights.requires_grad}


def adapted():
    """A transformer that was trained here and frozen, with adapters that do nothing yet."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is slower on several
    network = Transformer()
    fit(network, *sequences(500, 1, torch.argmax), steps=40)
    network.requires_grad_(False)
    for name in ("query", "value", "up", "down", "head"):
        setattr(network, name, Adapted(getattr(network, name)))
    return network


def accuracy(network, inputs, labels):
    with torch.no_grad():
        return (network(inputs).argmax(dim=1) == labels).float().mean()


def main():
    """Four people train the adapters of one frozen transformer."""
    network = adapted()

    def train(state, data):
        network.load_state_dict(state, strict=False)  # the rest stays
        fit(network, *data, steps=10)
        return adapters(network)

    def evaluate(state, data):
        network.load_state_dict(state, strict=False)
        return {"accuracy": accuracy(network, *data)}

    start, whole = adapters(network), sequences(400, 2, torch.argmin)
    people = crowdfl.partition.iid(whole, 4)
    sent, held = (sum(weights.numel() for weights in part) for part in (start.values(), network.parameters()))
    print(f"{sent:,} of {held:,} parameters are sent; accuracy before: {evaluate(start, whole)['accuracy']:.2f}")
    print(crowdfl.simulate(train, evaluate, people, rounds=5, initial=start))


if __name__ == "__main__":
    main()
