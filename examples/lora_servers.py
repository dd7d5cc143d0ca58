"""Adapters by the names that Hugging Face's PEFT gives them, through real servers: `python examples/lora_servers.py`.

The transformer is that of lora.py, and needs PyTorch alone. With `peft` it is `get_peft_model_state_dict(network)` and
`set_peft_model_state_dict(network, state)` in place of the two functions here. Only the adapters leave a device.
"""

import torch
from lora import accuracy, adapted, adapters, fit, sequences
from safetensors.torch import save_file

import crowdfl

PREFIX, PARTS = "base_model.model.", {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight"}


def get_adapters(network):
    """`base_model.model.query.lora_A.weight` and so on."""
    return {PREFIX + rename(name, PARTS): weights for name, weights in adapters(network).items()}


def set_adapters(network, state):
    """The inverse; the frozen layers stay."""
    back = {new: old for old, new in PARTS.items()}
    network.load_state_dict(
        {rename(name.removeprefix(PREFIX), back): part for name, part in state.items()}, strict=False
    )


def rename(name, parts):
    for old, new in parts.items():
        name = name.replace(old, new)
    return name


def main():
    """Four people and three servers; the result is a file that PEFT reads."""
    network = adapted()

    def train(state, data):
        set_adapters(network, state)
        fit(network, *data, steps=10)
        return get_adapters(network)

    whole = sequences(400, 2, torch.argmin)
    people, start = crowdfl.partition.iid(whole, 4), get_adapters(network)
    before = accuracy(network, *whole)
    with crowdfl.local_servers() as servers:
        task = servers.create(initial=start, rounds=5)
        for data, link in zip(people.values(), task.invite(4), strict=True):
            crowdfl.join(link).start(train, None, data)  # one network serves all four: they take turns
        set_adapters(network, found := task.wait().model)
    print(f"{len(found)} adapters were sent; accuracy {before:.2f} before, {accuracy(network, *whole):.2f} after")
    save_file(found, "adapter_model.safetensors")
    print(next(iter(found)))


if __name__ == "__main__":
    main()
