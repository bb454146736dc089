"""A `gymnasium.vector.VectorEnv` that somebody else has made, in any of the three autoreset modes, as a driver.

All its lanes step together. A lane that is spare (see `BatchDriver`) goes along with the others and is reset when its
turn comes; where a lane whose episode runs would have to wait for others, the request is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.vector.batch_driver import Batch, BatchDriver, Member
from outrider.vector.batch_infos import final_observation, has_finals
from outrider.vector.batched import autoreset_mode_of, refusal
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD, Returned
from outrider.vector.rewards import declared_rewards
from outrider.vector.store import numbers_of

__all__ = ["ForeignDriver"]


@dataclass(frozen=True)
class Request:
    """What was asked of some lanes.

    Attributes:
        lanes, rows: int64 [k], lanes ascending.
        ops: int8 [k].
        want: which infos.
    """

    lanes: np.ndarray
    rows: np.ndarray
    ops: np.ndarray
    want: int

    @property
    def steps(self) -> bool:
        """Whether any lane is to be stepped."""
        return bool((self.ops != RESET).any())

    def part(self, chosen: np.ndarray) -> Request:
        """The same for some of the lanes, bool [k]."""
        return Request(self.lanes[chosen], self.rows[chosen], self.ops[chosen], self.want)

    @classmethod
    def joined(cls, requests: Sequence[Request]) -> Request:
        """Several requests, of different lanes, as one."""
        if len(requests) == 1:
            return requests[0]
        lanes, rows, ops = (
            np.concatenate([getattr(one, name) for one in requests]) for name in ("lanes", "rows", "ops")
        )
        order = np.argsort(lanes)
        return cls(lanes[order], rows[order], ops[order], max(one.want for one in requests))


class ForeignDriver(BatchDriver):
    """Steps a vector environment of Gymnasium's API.

    What a lane does in a step follows from the source's mode and the operation:

    - same-step: the source has reset a lane that ends; its last observation is taken from the infos. Where they do not
      have it, the lane is `blind`: that its episode has ended is all that is known.
    - next-step: the observation at an end is the last one, and the lane's next step is a dummy, in which the source
      resets it: no reward, no flags, and the first observation of the next episode.
    - disabled: a lane that ends is reset by a mask in the same call (`STEP`), or stays at its end (`STEP_AND_HOLD`).

    Only Gymnasium's own `SyncVectorEnv` and `AsyncVectorEnv`, and sources without autoreset, are known to take a mask
    and a list of seeds. Others are reset as a whole, and get one seed, that of the first lane that is reset.
    """

    def __init__(self, source: Any, num_envs: int, info_keys: tuple[str, ...]) -> None:
        self.autoreset_mode: AutoresetMode
        self.autoreset_mode, self._declared = autoreset_mode_of(source)
        member = Member(
            source.single_observation_space,
            source.single_action_space,
            dict(source.metadata or {}),
            source.spec,
            source.render_mode,
            declared_rewards(source, type(source).__name__),
        )
        super().__init__(source, member, num_envs, info_keys)
        self._has_begun = False
        base = getattr(source, "unwrapped", source)
        # Whatever has `send_reset` is ours, inside of a wrapper.
        ours = isinstance(base, (SyncVectorEnv, AsyncVectorEnv)) or hasattr(base, "send_reset")
        self._takes_seeds = ours
        self._takes_mask = ours or self.autoreset_mode == AutoresetMode.DISABLED
        # Its workers do not notice that a lane at its end was reset: its next step resets it once more.
        self._resets_twice = (
            self.autoreset_mode == AutoresetMode.NEXT_STEP
            and isinstance(base, AsyncVectorEnv)
            and not base.shared_memory
        )
        self._arguments: dict[int, tuple[int | None, dict[str, Any] | None]] = {}
        self._posted: list[Request] = []
        # Whether the only request is one range of all lanes.
        self._whole = False

    def _end(self, source: Any) -> None:
        """Close the source; workers that were left in the middle of a call are ended, because some wait for ever."""
        if not (self._is_torn and isinstance(getattr(source, "unwrapped", source), AsyncVectorEnv)):
            super()._end(source)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is closed in the middle of a call
            source.close(terminate=True)

    # -- requests ----------------------------------------------------------------------------------------------------

    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """See `Driver.post`; what is posted before a wait is one step of the source.

        Raises:
            ConfigError: the source cannot do this; nothing has been touched.
        """
        numbers = numbers_of(lanes)
        ops = np.full(len(numbers), op, np.int8) if isinstance(op, int) else np.asarray(op, np.int8)
        request = Request(numbers, numbers_of(rows), ops, want)
        try:
            joined = Request.joined([*self._posted, request])
            self._check_steps(joined)
            self._check_resets(joined, may_be_stepped=True)
        except ConfigError:
            for lane in numbers.tolist():
                self._arguments.pop(lane, None)
            raise
        self._spare[numbers] = False
        self._whole = len(lanes) == self.num_envs and type(lanes) is range
        self._posted.append(request)

    def _check_steps(self, request: Request) -> None:
        steps = request.lanes[request.ops != RESET]
        if not len(steps):
            return
        asked = np.zeros(self.num_envs, np.bool_)
        asked[request.lanes] = True
        left_out = np.flatnonzero(~asked & ~self._spare)
        if len(left_out):
            raise refusal(
                "all lanes whose episodes run: those of this vector environment step together",
                f"none for lanes {left_out.tolist()}",
                "actions",
                "send to all lanes at once, or use environments of your own (a factory) to step them apart",
            )
        unready = steps[self._spare[steps] & ~self._resets_by_itself(steps)]
        if len(unready):
            raise refusal("lanes that were reset", f"lanes {unready.tolist()} without", "step", "reset them first")

    def _check_resets(self, request: Request, *, may_be_stepped: bool) -> None:
        """Refuse resets that the source cannot do, unless a step of the others that is yet to be posted does them."""
        rest = self._explicit(request)
        if not len(rest):
            return
        others = np.setdiff1d(self._everyone, rest)
        if len(others) and not self._takes_mask and (request.steps or not self._spare[others].all()):
            if may_be_stepped and not request.steps and self._resets_by_itself(rest).all():
                return
            raise refusal(
                "a reset of all lanes: it is not known that this vector environment can reset some of them",
                f"one of lanes {rest.tolist()}",
                "reset",
                "reset all, or step the others as well if these have ended, or make it with autoreset_mode=DISABLED",
            )
        given = [self._arguments.get(lane, (None, None)) for lane in rest.tolist()]
        if not all(_alike(options, given[0][1]) for _, options in given):
            raise refusal("the same options for all lanes", "different ones", "options", "reset with the same options")
        seeded = [seed is not None for seed, _ in given]
        if any(seeded) and not self._takes_seeds and not all(seeded):
            raise refusal(
                "seeds of all lanes or of none: it is not known that this vector environment takes a list of them",
                f"seeds of {sum(seeded)} of {len(rest)} lanes",
                "seed",
                "reset all lanes with one integer",
            )

    def _resets_by_itself(self, lanes: np.ndarray) -> np.ndarray:
        """Which of `lanes` the source resets in its next step, whatever is asked."""
        mine: np.ndarray = self._at_end[lanes] & (self.autoreset_mode == AutoresetMode.NEXT_STEP)
        return mine

    def _explicit(self, request: Request) -> np.ndarray:
        """Which lanes the source must be told to reset."""
        resets: np.ndarray = request.lanes[request.ops == RESET]
        may_step = request.steps or (self._resets_twice and bool(self._at_end.all()))
        if len(resets) and may_step:
            arranged = np.array([lane in self._arguments for lane in resets.tolist()], np.bool_)
            resets = resets[arranged | ~self._resets_by_itself(resets)]
        return resets

    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """See `Driver.arrange_resets`; they wait for a reset that is asked for, not for one that the source makes."""
        for lane, (seed, options) in arguments.items():
            before = self._arguments.get(lane, (None, None))
            self._arguments[lane] = (
                before[0] if seed is None else seed,
                before[1] if options is None else options,
            )

    # -- stepping ----------------------------------------------------------------------------------------------------

    def wait(self, least: int | None = None) -> Returned:
        """See `Driver.wait`; there is nothing that could arrive earlier than the rest."""
        del least
        if not self._posted:
            return Returned(range(0), [])
        request = Request.joined(self._posted)
        self._check_resets(request, may_be_stepped=False)
        posted, self._posted = self._posted, []
        found = Returned(range(self.num_envs), [])
        resets = self._explicit(request)
        explicit = request.part(np.isin(request.lanes, resets)) if len(resets) else None
        # After an interruption nobody knows where they are.
        spare, self._spare = self._spare, np.ones(self.num_envs, np.bool_)
        if request.steps or explicit is None:
            self._step(request.part(~np.isin(request.lanes, resets)) if len(resets) else request, found)
        if explicit is not None:
            self._reset(explicit, found)
        if found.ended:
            held = np.isin(request.lanes, found.ended) & (request.ops == STEP_AND_HOLD)
            spare[request.lanes[held]] = True
        self._spare = spare
        if not self._whole:
            _put_in_order(found, np.concatenate([one.lanes for one in posted]))
        return found

    def _step(self, request: Request, found: Returned) -> None:
        """One step of the source; lanes that are not in the request go along, and what they do is dropped."""
        disabled = self.autoreset_mode == AutoresetMode.DISABLED
        if disabled and self._at_end.any():
            self._call_reset(self._at_end.copy(), None, None)
        with self._calling("step"):
            step = self._source.step(tree.map(np.copy, self.store.action))
            batch = Batch.of(step, self.num_envs, self.store.reward.shape[1:])
            chosen = None if len(request.lanes) == self.num_envs else request.lanes
            by_itself = self._resets_by_itself(self._everyone)
            ended = self._put_step(batch, chosen, request.lanes, request.rows, request.ops)
            found.ended = request.lanes[ended].tolist()
            found.dummies = request.lanes[by_itself[request.lanes] & (request.ops != RESET)].tolist()
            again = request.part(ended & (request.ops == STEP) & disabled)
            self._keep_infos(found, batch, request.lanes, request.lanes if len(again.lanes) else chosen, request.want)
            if found.ended:
                self._keep_finals(batch, request.part(ended), found)
            if self.autoreset_mode != AutoresetMode.SAME_STEP:
                self._at_end = (batch.terminated | batch.truncated) & ~by_itself
        if len(again.lanes):
            self._begin_anew(again, found)

    def _keep_finals(self, batch: Batch, ended: Request, found: Returned) -> None:
        """Put the last observations of lanes that ended where they are looked for; say where there is none."""
        aside = ended.ops == STEP
        targets = np.where(aside, self.store.final + ended.lanes, ended.rows)
        if self.autoreset_mode != AutoresetMode.SAME_STEP:
            self._refuse_same_step(batch.infos)
            self._write(batch.obs, batch.count, ended.lanes[aside], targets[aside])
            return
        for lane, target, is_aside in zip(ended.lanes.tolist(), targets.tolist(), aside.tolist(), strict=True):
            last = final_observation(batch.infos, lane, batch.count)
            if last is None:
                found.blind.append(lane)
                self._clear(target)
            else:
                self._write_one(last, target)
            if not is_aside:
                # It stays at its end, for all that is known outside.
                found.infos.pop(lane, None)
                found.infos |= {lane: found.final_infos.pop(lane)} if lane in found.final_infos else {}

    def _clear(self, row: int) -> None:
        """Let nothing stand in a row that could be taken for an observation."""
        tree.map(
            lambda leaf, spec: leaf.__setitem__(row, spec.zeros(1)[0]),
            self.store.obs,
            self.store.frame.rows.specs["obs"],
        )

    def _refuse_same_step(self, infos: Any) -> None:
        """Make sure that a source that does not say its mode is of the one that is taken for granted."""
        if not self._declared and has_finals(infos):
            raise SpecError(
                explain(
                    expected=f"{self.autoreset_mode}, which is taken for granted where the metadata do not say",
                    found="a last observation in the infos: it resets in the step that ends an episode",
                    where="metadata['autoreset_mode']",
                    fix="set metadata['autoreset_mode'] = gymnasium.vector.AutoresetMode.SAME_STEP",
                )
            )

    def _begin_anew(self, again: Request, found: Returned) -> None:
        """Reset lanes that have ended in this step; the infos that came with it are those of their ends."""
        for lane in again.lanes.tolist():
            if lane in found.infos:
                found.final_infos[lane] = found.infos.pop(lane)
        self._reset(again, found)

    # -- resets ------------------------------------------------------------------------------------------------------

    def _reset(self, request: Request, found: Returned) -> None:
        """Reset lanes, and others with them where the source cannot tell them apart and nobody minds."""
        lanes, count = request.lanes, self.num_envs
        arguments = [self._arguments.pop(lane, (None, None)) for lane in lanes.tolist()]
        seeds = np.full(count, None, object)
        seeds[lanes] = [seed for seed, _ in arguments]
        mask = np.full(count, not self._takes_mask)
        mask[lanes] = True
        obs, infos = self._call_reset(mask, self._seed(seeds.tolist(), int(lanes[0])), arguments[0][1])
        with self._calling("reset"):
            chosen = None if len(lanes) == count else lanes
            self._write(obs, count, chosen, request.rows)
            none = np.zeros(count, np.bool_)
            self._keep_infos(found, Batch(obs, none, none, none, infos, count), lanes, chosen, request.want)

    def _seed(self, seeds: list[int | None], lane: int) -> Any:
        """The seeds of all lanes as the source takes them: as a list, or that of one lane that is reset."""
        first = seeds[0]
        if all(seed is None for seed in seeds):
            return None
        if first is not None and seeds == list(range(first, first + len(seeds))):
            return first
        return seeds if self._takes_seeds else seeds[lane]

    def _call_reset(self, mask: np.ndarray, seed: Any, options: dict[str, Any] | None) -> tuple[Any, Any]:
        given = None if options is None else dict(options)
        if not mask.all() and not self._has_begun:
            # Gymnasium's own cannot return the observations of lanes that have none yet.
            with self._calling("reset"):
                self._source.reset()
        self._has_begun = True
        if not mask.all():
            given = (given or {}) | {"reset_mask": mask.copy()}
        with self._calling("reset"):
            obs, infos = self._source.reset(seed=seed, options=given)
        self._at_end[mask] &= self._resets_twice
        return obs, infos

    # -- attributes --------------------------------------------------------------------------------------------------

    def _question(self, lanes: list[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> Any:
        source = self._source
        method = {"get": "get_attr", "set": "set_attr", "call": "call", "render": "render"}[operation]
        if not hasattr(source, method):
            found = type(source).__name__
            raise refusal(f"a vector environment with {method}()", found, operation, "ask it in its own way")
        if operation == "get":
            return lambda: [source.get_attr(name)[lane] for lane in lanes]
        if operation == "render":
            return lambda: [source.render()[lane] for lane in lanes]
        if lanes != list(range(self.num_envs)):
            expected, found = "all lanes: this vector environment asks all of them", f"lanes {lanes}"
            raise refusal(expected, found, f"{operation} {name!r}", "ask all lanes")
        if operation == "set":
            return lambda: source.set_attr(name, [value for (value,) in arguments]) or [None] * len(lanes)
        given, named = arguments[0]
        return lambda: source.call(name, *given, **named)


def _put_in_order(found: Returned, lanes: np.ndarray) -> None:
    """Let everything be in the order of `lanes`."""
    found.lanes = lanes
    place = dict(zip(lanes.tolist(), range(len(lanes)), strict=True))
    for some in (found.ended, found.dummies, found.blind):
        some.sort(key=place.__getitem__)


def _alike(one: Any, other: Any) -> bool:
    """Whether two options are the same; those with arrays in them, only if they are one object."""
    try:
        return one is other or bool(one == other)
    except ValueError:
        return False
