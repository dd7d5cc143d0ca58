"""A PyTorch network by its `state_dict`, on a watch's recordings of three people: `python examples/torch_state_dict.py`."""

import torch
from torch import nn

import crowdfl
from crowdfl.learning.datasets.supplied import Watch

network = nn.Sequential(
    nn.Conv1d(6, 16, kernel_size=9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 7)
)


def tensors(person):
    """Windows come as (windows, samples, channels); torch wants channels first. Every fourth one, to be quick."""
    return torch.tensor(person.windows[::4]).transpose(1, 2), torch.tensor(person.labels[::4])


def train(state, data):
    """The usual loop; a `state_dict` in, a `state_dict` out."""
    inputs, labels = tensors(data.train)
    network.load_state_dict(state)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
    return network.state_dict(), len(labels)


def evaluate(state, data):
    """On the part of each recording that nobody trains on."""
    inputs, labels = tensors(data.held_out)
    network.load_state_dict(state)
    with torch.no_grad():
        return {"accuracy": (network(inputs).argmax(1) == labels).float().mean(), "samples": len(labels)}


def main():
    """Three people, three rounds."""
    torch.manual_seed(1)
    watch = Watch()
    people = {f"person-{index}": watch.load_person(index) for index in range(3)}
    result = crowdfl.simulate(train, evaluate, people, rounds=3, initial=network.state_dict())
    network.load_state_dict(result.model)
    print(result)


if __name__ == "__main__":
    main()
