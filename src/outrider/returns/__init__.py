"""What a learner is to predict: returns and advantages, of arrays [T] or [T, N] and of rollouts.

`gae`, `lambda_returns`, `discounted_returns`, `n_step` and `vtrace` are functions of arrays; `advantages` makes the
columns of a rollout, and `normalize_advantages` puts advantages on one scale. Returns of NumPy arrays are computed by
Numba kernels, those of tensors by `outrider.torch.returns`.
"""

from outrider.returns.functions import ClippedRatio, VTrace, discounted_returns, gae, lambda_returns, n_step, vtrace
from outrider.returns.normalize import normalize_advantages
from outrider.returns.of_rollout import advantages

__all__ = [
    "ClippedRatio",
    "VTrace",
    "advantages",
    "discounted_returns",
    "gae",
    "lambda_returns",
    "n_step",
    "normalize_advantages",
    "vtrace",
]
