"""One decision of the policy for a batch of lanes: what it sees, what it returns, where that goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider import tree
from outrider.collect.actions import ActionMap, ActionMapName, LeafMap
from outrider.collect.infos import info_specs
from outrider.collect.stand_in import StandIn
from outrider.collect.stats import Recorder
from outrider.collect.tape import Tape, column_specs
from outrider.errors import PolicyError, explain
from outrider.memory.rows import Rows
from outrider.policies.base import Policy
from outrider.policies.outputs import OutputSchema, as_arrays
from outrider.records.step_spec import StepSpec
from outrider.spec import LeafSpec
from outrider.tree import Tree
from outrider.undisturbed import undisturbed
from outrider.vector.env import VecEnv
from outrider.vector.store import indexer

if TYPE_CHECKING:
    from gymnasium import Space

__all__ = ["Decider", "Terms", "raised"]

OTHER_POLICY = -1
"""The version of steps that another policy than the collector's own has decided."""


@dataclass(frozen=True)
class Terms:
    """How a policy is applied.

    Attributes:
        seed: run seed, for policies whose randomness is counter-based.
        action_map: see `ActionMap`.
        make_columns: makes the columns for these specs; None lets the store make them.
    """

    seed: int
    action_map: ActionMapName = "auto"
    make_columns: Callable[[Tree], Rows] | None = None


class Decider:
    """Calls the policy and keeps what belongs to it: the columns of its output, its states, the version of its weights.

    Attributes:
        version: number of the weights that decide at present.
        columns: the columns that are written, once the first decision has shown what the policy returns.
        together: steps that all lanes have taken together; it goes up by one when a step of all is done.
    """

    def __init__(self, envs: VecEnv, policy: Policy, tape: Tape, terms: Terms) -> None:
        self.version = 0
        self.columns: Rows | None = None
        policy.check_action_space(envs.single_action_space)
        self._policy = policy
        self._own = (policy, self.version)
        self._store = envs.store
        self._lanes = envs.lanes
        self._everyone = indexer(envs.lanes)
        self._space = envs.single_action_space
        self._tape = tape
        self._seed, self._action_map = terms.seed, terms.action_map
        self._make_columns = terms.make_columns or self._store.columns
        self._map = ActionMap(self._space, self._store.action, terms.action_map, policy.actions)
        self._obs: list[np.ndarray] = tree.leaves(self._store.obs)
        self._single = self._store.obs if isinstance(self._store.obs, np.ndarray) else None
        self.together = 0
        # What each lane has taken besides.
        self._apart = np.zeros(len(envs.lanes), np.int64)
        self._begun = np.zeros(len(envs.lanes), np.int64)
        self._lane_numbers = np.arange(envs.lanes.start, envs.lanes.stop)
        self._schema: OutputSchema | None = None
        self._applied: list[tuple[int, LeafMap]] = []
        self._written: list[np.ndarray] = []
        self._states: list[np.ndarray] = []

    @contextmanager
    def session(self) -> Iterator[None]:
        """The policy's own context, to be entered around many decisions."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._policy.session())
            except PolicyError:
                raise
            except Exception as error:
                raise raised(error, "session of the policy", "no arguments") from error
            yield

    def decide(self, lanes: Any, rows: Any, recorder: Recorder) -> None:
        """Decide for `lanes` by the observations in `rows`; put the actions where the environments take theirs from.

        Args:
            lanes: range or int64 array [n].
            rows: range or int64 array [n], of their observations.
            recorder: where the time goes down.
        """
        began = perf_counter()
        at = slice(rows.start, rows.stop) if type(rows) is range else rows
        # The policy gets a copy: whatever it does to it, or keeps of it, changes no storage.
        if self._single is None:
            sees = tree.map(lambda leaf: np.array(leaf[at]), self._store.obs)
        else:
            sees = self._single[at].copy() if type(at) is slice else self._single[at]
        state = self._state(lanes, at) if self._states or self._schema is None else None
        initial = tree.map(np.copy, state) if self._schema is None else None
        try:
            output = self._policy.act(sees, state, _Moment((self, lanes, rows)))
        except PolicyError:
            raise
        except Exception as error:
            shapes = ", ".join(f"{path}: {leaf.shape} {leaf.dtype}" for path, leaf in tree.items(sees, "obs"))
            raise raised(error, "the policy", f"a batch of {len(lanes)} rows ({shapes})") from error
        recorder.policy_seconds += perf_counter() - began
        if self._schema is None:
            with undisturbed():
                self._fix(output, len(lanes), initial, at)
        self._write(output, lanes, rows, at)

    def decide_with_version(self, lanes: Any, rows: Any, recorder: Recorder) -> None:
        """Decide, and put the version down with it.

        For rows of no block yet, and of a block that was prepared when the policy may have had other weights.
        """
        self.decide(lanes, rows, recorder)
        assert self.columns is not None, "a decision fixes the columns"
        self.columns.arrays["version"][indexer(rows)] = self.version

    def _state(self, lanes: Any, at: Any) -> Tree:
        if self.columns is None:
            state = self._initial_state(len(lanes))
            return None if state is None else tree.map(np.copy, as_arrays(state, len(lanes), "initial_state"))
        return tree.map(lambda leaf: np.array(leaf[at]), self.columns.arrays["state"])

    def _initial_state(self, count: int) -> Tree:
        try:
            return self._policy.initial_state(count)
        except PolicyError:
            raise
        except Exception as error:
            raise raised(error, "initial_state of the policy", f"n={count}") from error

    def _fix(self, output: dict[str, Tree], n: int, state: Tree, at: Any) -> None:
        """Fix what the policy returns from now on, and make columns for it."""
        schema = OutputSchema.of(output, n, self._space, state=state, convention=self._policy.actions or "env")
        self._map.arrange(tree.paths(schema.specs["action"], "action"))
        self._applied = list(enumerate(self._map.applied))
        columns = self._make_columns(column_specs(schema.specs))
        self._states = tree.leaves(columns.arrays["state"])
        kept = columns.arrays["action"], columns.arrays["extras"]
        self._written = [leaf for part in kept for leaf in tree.leaves(part)]
        if state is not None:
            tree.put(columns.arrays["state"], at, state)
        self.columns = columns
        self._schema = schema
        self._tape.fix(columns)

    def _write(self, output: dict[str, Tree], lanes: Any, rows: Any, at: Any) -> None:
        assert self._schema is not None
        leaves = self._schema.leaves(output, len(lanes))
        to = self._everyone if lanes is self._lanes else indexer(lanes)
        for index, apply in self._applied:
            leaves[index] = apply(leaves[index], to)
        for column, leaf in zip(self._written, leaves, strict=False):
            column[at] = leaf
        if self._states:
            after = self._store.after(rows)
            for column, leaf in zip(self._states, leaves[len(self._written) :], strict=True):
                column[after] = leaf

    def stepped(self, lanes: Any, dummies: Sequence[int] = ()) -> None:
        """Count a step of each of `lanes`, but of `dummies` among them, whose step did nothing but reset them."""
        for lane in dummies:
            self._apart[lane - self._lanes.start] -= 1
        if len(lanes) == len(self._lanes):
            self.together += 1
        else:
            self._apart[np.asarray(lanes) - self._lanes.start] += 1

    def lane_steps(self, index: Any) -> np.ndarray:
        """Steps that lanes have taken in the run, int64; `index` counts from the first lane."""
        steps: np.ndarray = self._apart[index] + self.together
        return steps

    def is_running(self, lane: int) -> bool:
        """Whether the lane has taken a step in its episode."""
        index = lane - self._lanes.start
        return bool(self.lane_steps(index) > self._begun[index])

    def begin(self, lanes: Any, rows: Any) -> None:
        """An episode begins in each of `lanes`, with the observations in `rows` (lists or arrays): states go there."""
        first = self._lanes.start
        for lane in lanes:
            self._begun[lane - first] = self.together + self._apart[lane - first]
        if self._schema is not None and self._states and len(lanes):
            initial = as_arrays(self._initial_state(len(lanes)), len(lanes), "initial_state")
            same = tree.map(_check_state, self._schema.specs["state"], initial, path="initial_state")
            for column, leaf in zip(self._states, tree.leaves(same), strict=True):
                column[np.asarray(rows)] = leaf

    def prepare(self, base: int, rows: int) -> None:
        """Fill in what is the same in all rows of a block: no step of it is a cut yet, and these weights decide."""
        assert self.columns is not None, "a block is filled only after a decision"
        mine = slice(self._lanes.start, self._lanes.stop)
        for name, value in (("cut", False), ("version", self.version)):
            block = self.columns.arrays[name][base : base + rows]
            block.reshape(-1, self._store.num_envs)[:, mine] = value

    def move(self, source: Any, target: Any, *, decided: bool) -> None:
        """Copy what belongs to an observation from rows to rows: it, the state, and the decision if there is one."""
        if self._tape.obs_infos:
            self._tape.obs_infos.move(source, target)
        into, out_of = indexer(target), indexer(source)
        for leaf in self._obs:
            leaf[into] = leaf[out_of]
        if self.columns is not None:
            for leaf in self.columns.leaves if decided else self._states:
                leaf[into] = leaf[out_of]
        if decided:
            # A decision has also left a state for the next step.
            for leaf in self._states:
                leaf[self._store.after(target)] = leaf[self._store.after(source)]

    def take_over(self, source: Any, target: Any) -> None:
        """Copy observations, and the infos that came with them, from rows to rows."""
        if self._tape.obs_infos:
            self._tape.obs_infos.move(source, target)
        for leaf in self._obs:
            leaf[target] = leaf[source]

    def load(self, weights: Tree) -> int:
        """Let the policy take new weights; return the number of this version."""
        try:
            self._policy.load(weights)
        except PolicyError:
            raise
        except Exception as error:
            raise raised(error, "load of the policy", "the weights that were published") from error
        self.version += 1
        self._own = self._policy, self.version
        return self.version

    def stand_in(self, policy: Policy | None) -> None:
        """Let another policy decide, once the first decision has been made; None: the collector's own again."""
        self._policy, self.version = self._own
        if policy is not None:
            assert self._schema is not None, "only what the own policy returns says what another one has to"
            policy.check_action_space(self._space)
            terms = self._space, self._action_map, self._lanes
            self._policy, self.version = StandIn(policy, self._policy, self._schema.specs, *terms), OTHER_POLICY

    def spec(self, envs: VecEnv) -> StepSpec:
        """What the rows look like."""
        assert self._schema is not None
        specs = self._schema.specs
        return StepSpec(
            obs=self._store.frame.rows.specs["obs"],
            action=specs["action"],
            num_envs=len(self._lanes),
            extras=specs["extras"],
            state=specs["state"],
            observation_space=envs.single_observation_space,
            action_space=envs.single_action_space,
            env_name=envs.name,
            reward=self._store.frame.rows.specs["reward"],
            **info_specs(self._tape.infos, self._tape.obs_infos),
        )


def _check_state(spec: LeafSpec, leaf: np.ndarray) -> np.ndarray:
    """Refuse an initial state that is not like the first one."""
    if (leaf.shape[1:], leaf.dtype) != (spec.shape, spec.dtype):
        raise PolicyError(
            explain(
                expected=f"shape {(len(leaf), *spec.shape)}, dtype {spec.dtype}, as at the first call",
                found=f"shape {leaf.shape}, dtype {leaf.dtype}",
                where="initial_state",
                fix="return the same structure, shape and dtype at every call",
            )
        )
    return leaf


def raised(error: Exception, who: str, given: str) -> PolicyError:
    """What is to be raised from an error in the policy's own code.

    Args:
        error: what was raised.
        who: was called.
        given: what it was called with.
    """
    told = PolicyError(f"{who} raised {type(error).__name__}: {error}")
    told.add_note(f"{who} was called with {given}")
    return told


class _Moment(tuple[Decider, Any, Any]):
    """The context of a decision: (decider, lanes, rows), from which it computes what is asked for."""

    __slots__ = ()

    @property
    def _decider(self) -> Decider:
        return self[0]

    @property
    def _lanes(self) -> Any:
        return self[1]

    @property
    def _rows(self) -> Any:
        return self[2]

    @property
    def _index(self) -> Any:
        first = self._decider._lanes.start  # noqa: SLF001 - the two are one thing, split for the sake of speed
        if type(self._lanes) is range:
            return slice(self._lanes.start - first, self._lanes.stop - first)
        return self._lanes - first

    @property
    def env_id(self) -> np.ndarray:
        """Lane of each row, int64 [n]."""
        numbers: np.ndarray = self._decider._lane_numbers[self._index].copy()  # noqa: SLF001 - as above
        return numbers

    @property
    def lane_step(self) -> np.ndarray:
        """Steps that each lane has taken in the run, int64 [n]."""
        return self._decider.lane_steps(self._index)

    @property
    def step(self) -> np.ndarray:
        """Index of the row in its episode, int64 [n]."""
        begun: np.ndarray = self._decider._begun[self._index]  # noqa: SLF001 - as above
        step: np.ndarray = self.lane_step - begun
        return step

    @property
    def is_first(self) -> np.ndarray:
        """Whether the row begins an episode, bool [n]."""
        first: np.ndarray = self.step == 0
        return first

    @property
    def obs_info(self) -> dict[str, Any]:
        """Wanted infos that came with the observations: columns [n, ...], masks under "_key"."""
        infos: dict[str, Any] = self._decider._tape.obs_infos.columns(np.asarray(self._rows))  # noqa: SLF001 - as above
        return infos

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self._decider._seed  # noqa: SLF001 - as above

    @property
    def num_envs(self) -> int:
        """Lanes of the run, those of other workers included."""
        return self._decider._store.num_envs  # noqa: SLF001 - as above

    @property
    def action_space(self) -> Space[Any]:
        """Of one environment."""
        return self._decider._space  # noqa: SLF001 - as above
