"""Exploration by noise that is added to continuous actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import numpy as np
from gymnasium import Space, spaces

from outrider import tree
from outrider.errors import ConfigError, PolicyError, explain
from outrider.policies.base import ContextLike, Policy
from outrider.policies.noise import Noise
from outrider.policies.space_sampler import space_leaves
from outrider.policies.streams import ACTION_NOISE, StreamKey
from outrider.policies.wrapper import PolicyWrapper, action_space
from outrider.tree import Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ActionNoise"]

WHERE = "ActionNoise(policy, noise)"


@final
class ActionNoise(PolicyWrapper):
    """Adds noise to the actions of a policy, in each lane for itself.

    It is added to every Box of floats of the action space; other parts stay as they are. It is in the scale of the
    policy's actions, whatever the collector's `action_map` makes of them afterwards, and what is stored is the sum. The
    noise of a step is a pure function of the seed of the run, the lane, its step, and where its episode began. All else
    is the policy's own: convention and dtype of the actions, extras (which tell of its own action, without noise),
    state, session and weights. `deterministic()` is the policy without noise.

    Args:
        policy: what decides: a `Policy` or a function of the observations.
        noise: `GaussianNoise` or `OrnsteinUhlenbeckNoise`.
        clip: None, or the lowest and the highest sum, in the policy's scale: numbers, or arrays of the shape of a Box
            that is the only one. Without it, a sum beyond the bounds is stored as it is; the environment gets a clipped
            one.

    Raises:
        ConfigError: it is no such noise, or no such pair; later, when a collector is made: the action space has no Box
            of floats.

    Example:
        >>> from outrider.policies.base import Context
        >>> from outrider.policies.noise import GaussianNoise
        >>> policy = ActionNoise(lambda obs: np.ones((len(obs), 1)), GaussianNoise(0.1), clip=(-1, 1))
        >>> ctx = Context.start(1000, 0, spaces.Box(-1, 1, (1,)))
        >>> actions = policy.act(np.zeros((1000, 4)), None, ctx)["action"]
        >>> bool(0.4 < (actions < 1).mean() < 0.6)
        True
    """

    def __init__(
        self,
        policy: Policy | Callable[[Any], Any],
        noise: Noise,
        *,
        clip: tuple[Any, Any] | None = None,
    ) -> None:
        super().__init__(policy)
        if not isinstance(noise, Noise):
            raise ConfigError(
                explain(
                    expected="a GaussianNoise or an OrnsteinUhlenbeckNoise",
                    found=repr(noise),
                    where=WHERE,
                    fix="pass e.g. outrider.GaussianNoise(0.1)",
                )
            )
        self.noise = noise
        self._clip = None if clip is None else _bounds(clip)
        self._scale, self._source = noise.scale, noise.source()
        self._key = StreamKey(ACTION_NOISE, self._layer)
        self._made: tuple[Space[Any], dict[str, slice], int] | None = None

    def check_action_space(self, space: Space[Any]) -> None:
        """Refuse spaces without a Box of floats, and bounds of another shape."""
        super().check_action_space(space)
        self._columns(space)

    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """Decide as the policy inside does, and add the noise."""
        columns, k = self._columns(action_space(ctx))
        output = self._decided(obs, state, ctx)
        scale = np.reshape(self._scale(ctx), (-1, 1))
        noise = self._source.draw(self._key(ctx.seed), ctx, k) * scale
        paths = tree.items(output["action"], "action")
        noisy = [self._sum(leaf, noise[:, columns[path]], path) if path in columns else leaf for path, leaf in paths]
        output["action"] = tree.unflatten(output["action"], noisy)
        return output

    def _sum(self, action: NDArray[Any], noise: NDArray[np.float64], path: str) -> NDArray[Any]:
        """Action and noise, in the dtype of the action."""
        if action.dtype.kind != "f":
            fix = "let the policy return floats"
            raise PolicyError(
                explain(expected="floats, to add noise to", found=f"dtype {action.dtype}", where=path, fix=fix)
            )
        total = action + noise.reshape(action.shape)
        if self._clip is not None:
            total = np.clip(total, *self._clip)
        return total.astype(action.dtype)

    def _columns(self, space: Space[Any]) -> tuple[dict[str, slice], int]:
        """Which columns of the noise are for which leaf of the action, by path, and how many there are."""
        if self._made is None or self._made[0] is not space:
            leaves = space_leaves(space, "action")
            noisy = {path: leaf for path, leaf in leaves if isinstance(leaf, spaces.Box) and leaf.dtype.kind == "f"}
            if not noisy:
                fix = "explore among choices with outrider.EpsilonGreedy(policy, 0.1)"
                raise ConfigError(
                    explain(expected="a Box of floats", found=repr(space), where=f"{WHERE}: action space", fix=fix)
                )
            for path, leaf in noisy.items():
                self._check_clip(leaf, path)
            ends = np.cumsum([0, *(int(np.prod(leaf.shape)) for leaf in noisy.values())]).tolist()
            columns = {path: slice(*ends[index : index + 2]) for index, path in enumerate(noisy)}
            self._made = space, columns, ends[-1]
        return self._made[1:]

    def _check_clip(self, leaf: Space[Any], path: str) -> None:
        for bound in self._clip or ():
            if bound.shape not in ((), leaf.shape):
                expected = f"numbers, or arrays of shape {leaf.shape} as of {leaf} at '{path}'"
                fix = "pass numbers, or wrap one Box alone"
                raise ConfigError(
                    explain(expected=expected, found=f"shape {bound.shape}", where="ActionNoise(clip)", fix=fix)
                )

    def __repr__(self) -> str:
        return f"ActionNoise({self.policy!r}, {self.noise!r})"


def _bounds(clip: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    fix = "pass e.g. clip=(-1, 1)"
    try:
        low, high = (np.asarray(bound, np.float64) for bound in clip)
        legal = bool((low <= high).all())
    except (TypeError, ValueError):
        legal = False
    if not legal:
        expected = "a pair of a lowest and a highest action"
        raise ConfigError(explain(expected=expected, found=repr(clip), where="ActionNoise(clip)", fix=fix))
    return low, high
