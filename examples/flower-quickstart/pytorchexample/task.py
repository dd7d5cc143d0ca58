"""The model, its training, and the data.

Flower's quickstart downloads CIFAR-10 here. This copy makes pictures of the same shape up, so that it runs offline, and starts
from the same weights each time; all other code is as in Flower's documentation.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

PICTURES = 80  # of each client
torch.manual_seed(0)  # two runs can be compared


class Net(nn.Module):
    """A small CNN for pictures of 32 x 32 pixels."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def pictures(seed: int, count: int):
    """Ten kinds of pictures: a pattern for each kind, and noise."""
    patterns = torch.randn(10, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    drawn = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=drawn)
    noise = torch.randn(count, 3, 32, 32, generator=drawn)
    return TensorDataset((patterns[labels] + noise) / 2, labels)


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """One client's pictures: four fifths to train on, the rest to test on."""
    data = pictures(1 + partition_id, PICTURES + partition_id)
    order = torch.Generator().manual_seed(partition_id)  # the same each time, so that two runs can be compared
    train, test = torch.utils.data.random_split(data, [0.8, 0.2], generator=order)
    trainloader = DataLoader(train, batch_size=batch_size, shuffle=True, generator=order)
    return trainloader, DataLoader(test, batch_size=batch_size)


def load_centralized_dataset():
    """Pictures of no client."""
    return DataLoader(pictures(0, 128), batch_size=128)


def train(net, trainloader, epochs, lr, device):
    """Train the model on the training set."""
    net.to(device)
    criterion = torch.nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader, device):
    """Validate the model on the test set."""
    net.to(device)
    criterion = torch.nn.CrossEntropyLoss()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in testloader:
            images, labels = images.to(device), labels.to(device)
            outputs = net(images)
            loss += criterion(outputs, labels).item()
            correct += (torch.max(outputs.data, 1)[1] == labels).sum().item()
    accuracy = correct / len(testloader.dataset)
    return loss / len(testloader), accuracy
