"""Torch modules as policies: inference without gradients, and training flags that come back as they were."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, final, get_args

import numpy as np
import torch
from torch.nn.parameter import UninitializedParameter

from outrider import tree
from outrider.errors import ConfigError, PolicyError, explain
from outrider.policies.base import ContextLike, Policy
from outrider.torch.bridge import Bridge
from outrider.torch.flags import Flags
from outrider.torch.padding import Padding
from outrider.torch.weights import load_weights
from outrider.tree import Tree

__all__ = ["TorchPolicy"]

Mode = Literal["eval", "train", "keep"]


@final
class TorchPolicy(Policy):
    """Acts with a torch module: `module(obs)`, or `module(obs, state)` if the module has `initial_state(n)`.

    Observations reach the module as tensors [n, ...], or dicts and tuples of them; texts, sequences and graphs as
    NumPy arrays of objects [n]. It returns the action batch, or a dict of "action", "state" (exactly if it has one) and
    extras. What comes back is NumPy on the CPU, without gradients.

    The module is used as it is, not copied: a learner in the same process may update it in place between calls. Tensors
    that the module makes in `forward` are inference tensors, which autograd refuses: it should keep none for training.
    Where its actions are meant for a Box of [-1, 1], say so: `policy.actions = "unit"` (see `outrider.Policy`).

    A module that draws its actions may have a second method `deterministic(obs)`, or `deterministic(obs, state)`, which
    returns what `forward` returns, the likeliest actions in place of drawn ones: `policy.deterministic()` calls that.
    One that draws nothing says so by `deterministic = forward` in its class.

    Args:
        module: what decides; its own sampling uses torch's generators.
        device: where the module is and observations are moved to.
        mode: "eval" and "train" set the module's training flags during a session, "keep" leaves them.
        state_axis: the axis of the module's state tensors that is the batch: 1 for the (layers, n, hidden) of
            `torch.nn.LSTM` and `GRU`. Outside the module states are [n, ...].
        pad: False: batches are passed as they are. True: batches of less than 4 rows are padded to 4, because matrix
            products round differently for so few, and rows would depend on the size of the batch. A number: every batch
            is padded to that many rows, for compiled modules that want one size; larger ones are refused.

    Raises:
        ConfigError: it is no module, its parameters are lazy or on another device, or an option is none of those above.

    Example:
        >>> from outrider.policies.base import Context
        >>> module = torch.nn.Linear(4, 2)
        >>> policy = TorchPolicy(module)
        >>> with policy.session():
        ...     output = policy.act(np.zeros((3, 4), np.float32), None, Context.start(3))
        >>> output["action"].shape, module.training
        ((3, 2), True)
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        device: str | torch.device = "cpu",
        mode: Mode = "eval",
        state_axis: int = 0,
        pad: bool | int = False,
    ) -> None:
        _check_module(module)
        if mode not in get_args(Mode):
            raise _bad_option("mode", f"one of {get_args(Mode)}", mode)
        if isinstance(state_axis, bool) or not isinstance(state_axis, int):
            raise _bad_option("state_axis", "the number of an axis", state_axis)
        self.module = module
        self._draws = True
        self.device = _full_device(device)
        self.mode: Mode = mode
        self._state_axis = state_axis
        self._padding = None if pad is False else Padding.of(pad)
        self._bridge = Bridge(self.device, state_axis)
        _check_device(module, self.device)

    def initial_state(self, n: int) -> Tree:
        """The module's `initial_state(n)` as NumPy arrays [n, ...], or None if it has no such method."""
        make = getattr(self.module, "initial_state", None)
        if make is None:
            return None
        with torch.inference_mode():
            state = make(n)
        for path, leaf in tree.items(state, "state"):
            _check_state_leaf(leaf, n, self._state_axis, path)
        # A copy: what the module returned may be its own parameter, or one row seen n times.
        return tree.map(np.array, self._bridge.state_out(state))

    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """Call the module once for the whole batch; best inside `session`, which is entered here otherwise."""
        if not torch.is_inference_mode_enabled():
            with self.session():
                return self.act(obs, state, ctx)
        if self._padding is None:
            return self._forward(obs, state)
        n = len(ctx.env_id)
        size = self._padding.size(n)
        if size == n:
            return self._forward(obs, state)
        obs, state = self._padding.extend((obs, state), size)
        return self._padding.trim(self._forward(obs, state), size, n)

    def _forward(self, obs: Tree, state: Tree) -> dict[str, Tree]:
        """From NumPy through the module to NumPy."""
        decide: Any = self.module if self._draws else self.module.deterministic
        if state is None:
            output = decide(self._bridge.inputs(obs))
            if type(output) is dict and "action" in output:
                arrays = {}
                try:
                    for key, value in output.items():
                        arrays[key] = value.numpy()
                except (AttributeError, TypeError, RuntimeError):
                    # Not all are tensors that NumPy can share: each is looked at below.
                    pass
                else:
                    return arrays
        else:
            output = decide(self._bridge.inputs(obs), self._bridge.state_in(state))
            _check_recurrent(output)
        if not isinstance(output, dict) or "action" not in output:
            output = {"action": output}
        return self._bridge.outputs(output)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Inference mode, and the training flags of `mode`; each submodule's own flag is restored at the end."""
        flags = None if self.mode == "keep" else Flags(self.module, training=self.mode == "train")
        try:
            if flags:
                flags.set()
            with torch.inference_mode():
                yield
        finally:
            if flags:
                flags.restore()

    def deterministic(self) -> TorchPolicy:
        """Return a policy of the same module, weights and options that calls the module's method `deterministic`.

        Raises:
            PolicyError: the module has no such method, and may draw its actions.

        Example:
            >>> class Coin(torch.nn.Module):
            ...     def forward(self, obs):
            ...         return torch.randint(2, obs.shape[:1])
            ...
            ...     def deterministic(self, obs):
            ...         return torch.zeros(len(obs), dtype=torch.int64)
            >>> from outrider.policies.base import Context
            >>> TorchPolicy(Coin()).deterministic().act(np.zeros((3, 4)), None, Context.start(3))
            {'action': array([0, 0, 0])}
        """
        if not callable(getattr(self.module, "deterministic", None)):
            raise PolicyError(
                explain(
                    expected="a module with a method deterministic(obs), or deterministic(obs, state)",
                    found=f"{type(self.module).__name__}, which has none",
                    where="TorchPolicy.deterministic",
                    fix="define it to return what forward returns, with the likeliest actions; if forward draws "
                    "nothing, write `deterministic = forward` in the class",
                )
            )
        policy = copy.copy(self)
        policy._draws = False  # noqa: SLF001 - of this class
        return policy

    def load(self, tree: Tree) -> None:
        """Copy weights into the module.

        Args:
            tree: a module of the same structure, or its `state_dict()`, with tensors or NumPy arrays as values.

        Raises:
            PolicyError: names or shapes differ from the module's; nothing has been copied then.
        """
        load_weights(self.module, tree)

    def __repr__(self) -> str:
        return f"TorchPolicy({type(self.module).__name__}, device='{self.device}', mode='{self.mode}')"


def _check_module(module: object) -> None:
    if not isinstance(module, torch.nn.Module):
        fix = "pass an instance of a module; a plain function of arrays is a policy without TorchPolicy"
        raise ConfigError(
            explain(expected="a torch.nn.Module", found=repr(module), where="TorchPolicy(module)", fix=fix)
        )
    lazy = [name for name, parameter in module.named_parameters() if isinstance(parameter, UninitializedParameter)]
    if lazy:
        # Made in inference mode, they could never be trained.
        raise ConfigError(
            explain(
                expected="parameters of known shapes",
                found=f"lazy ones: {lazy}",
                where="TorchPolicy(module)",
                fix="call the module on a batch of observations first",
            )
        )


def _full_device(device: str | torch.device) -> torch.device:
    """The device with its index: "cuda" is the current one."""
    return torch.empty(0, device=device).device


def _check_device(module: torch.nn.Module, device: torch.device) -> None:
    """Refuse a module that is elsewhere: moving it would move it under its learner, too."""
    devices = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
    if devices and device not in devices:
        found = ", ".join(sorted(map(str, devices)))
        fix = f"pass device='{found}', or move the module first"
        raise ConfigError(explain(expected=f"a module on {device}", found=found, where="TorchPolicy(device)", fix=fix))


def _check_state_leaf(leaf: Any, n: int, axis: int, path: str) -> None:
    if isinstance(leaf, torch.Tensor) and -leaf.ndim <= axis < leaf.ndim and leaf.shape[axis] == n:
        return
    found = (
        f"shape {tuple(leaf.shape)}" if isinstance(leaf, torch.Tensor) else f"an object of type {type(leaf).__name__}"
    )
    raise PolicyError(
        explain(
            expected=f"a tensor with {n} rows along axis {axis}",
            found=found,
            where=f"initial_state({n}) of the module at '{path}'",
            fix="pass state_axis=k to TorchPolicy for the axis k that is the batch (1 for torch.nn.LSTM and GRU)",
        )
    )


def _check_recurrent(output: Any) -> None:
    if not isinstance(output, dict) or "state" not in output:
        found = f"a dict with keys {sorted(output)}" if isinstance(output, dict) else f"a {type(output).__name__}"
        raise PolicyError(
            explain(
                expected='a dict with "action" and "state"',
                found=found,
                where="module(obs, state), whose initial_state(n) returned a state",
                fix="return the new state with the action",
            )
        )


def _bad_option(name: str, expected: str, found: object) -> ConfigError:
    where = f"TorchPolicy({name})"
    return ConfigError(explain(expected=expected, found=repr(found), where=where, fix="pass one of these"))
