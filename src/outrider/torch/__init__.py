"""What needs PyTorch: `TorchPolicy` acts with a module, `unroll` runs a recurrent one over rollouts.

`outrider.torch.convert` makes torch records of NumPy ones.
"""

from outrider.torch.policy import TorchPolicy as TorchPolicy
from outrider.torch.unroll import unroll as unroll

__all__ = ["TorchPolicy", "unroll"]
