"""What needs PyTorch: `TorchPolicy` acts with a module; `outrider.torch.convert` makes torch records of NumPy ones."""

from outrider.torch.policy import TorchPolicy as TorchPolicy

__all__ = ["TorchPolicy"]
