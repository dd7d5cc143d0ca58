"""pytorchexample: Flower's PyTorch quickstart, protected by CrowdFL."""
