"""Modules as users write them, good and bad."""

import torch

__all__ = ["Altering", "Narrow", "Normed", "OverTime", "Stubborn"]


class Normed(torch.nn.Module):
    """With running means, and with dropout."""

    def __init__(self, inputs: int, labels: int) -> None:
        super().__init__()
        self.normal = torch.nn.BatchNorm1d(inputs)
        self.hidden = torch.nn.Linear(inputs, 12)
        self.dropout = torch.nn.Dropout(0.2)
        self.last = torch.nn.Linear(12, labels)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropout(torch.relu(self.hidden(self.normal(rows)))))


class OverTime(torch.nn.Module):
    """Convolutions over whole windows."""

    def __init__(self, inputs: tuple[int, int], labels: int) -> None:
        super().__init__()
        _, channels = inputs
        self.slide = torch.nn.Conv1d(channels, 4, 9)
        self.last = torch.nn.Linear(4, labels)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """From (n, window, channels)."""
        return self.last(torch.relu(self.slide(windows.transpose(1, 2))).mean(dim=2))


class Altering(torch.nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        rows *= 0.5
        return super().forward(rows)


class Narrow(torch.nn.Linear):
    def __init__(self, inputs: int, labels: int) -> None:
        super().__init__(inputs, 1)


class Stubborn(torch.nn.Linear):
    def __init__(self, inputs: int, labels: int) -> None:
        super().__init__(inputs + 1, labels)
