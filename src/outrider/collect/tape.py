"""What was collected and not yet handed out: blocks of rows, the order in which they came, and the ends of episodes.

Handing out is exact: a whole block becomes a rollout without a copy, anything else is gathered row by row, and rows
that nobody asked for yet stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider import tree
from outrider.collect.arrange import interleave, rank
from outrider.collect.infos import InfoTable
from outrider.collect.marks import Marks
from outrider.collect.side import SideTable
from outrider.memory.rows import Rows
from outrider.records.episodes import Episodes
from outrider.records.rollout import Rollout
from outrider.records.steps import Steps
from outrider.spec import LeafSpec
from outrider.tree import Tree
from outrider.vector.store import Store, numbers_of

__all__ = ["Block", "Tape", "column_specs"]

INTEGER = LeafSpec((), np.dtype(np.int64))
FLAG = LeafSpec((), np.dtype(np.bool_))
NO_ROWS = np.zeros(0, np.int64)
NO_INFOS: dict[str, dict[str, np.ndarray]] = {"info": {}, "obs_info": {}}


def column_specs(output: dict[str, Tree]) -> dict[str, Tree]:
    """Specs of the columns that a collector writes, for the specs of its policy's output."""
    marks = {"cut": FLAG, "episode_id": INTEGER, "step": INTEGER, "version": INTEGER}
    return {**output, **marks}


@dataclass(frozen=True)
class Block:
    """Rows [base, base + rows): some steps of all lanes and the observations behind them; opened as number `serial`."""

    base: int
    rows: int
    serial: int


class Tape:
    """Rows in the order in which they arrived, over the rows of a store and a collector's columns.

    Attributes:
        columns: the collector's columns, once the policy's output is known.
        side: the true last observations of ended episodes.
        dummies: rows of steps in which foreign environments did nothing but reset a lane: part of rollouts, and of
            nothing else.
        blind: rows of ends whose last observation is not known.
        infos, obs_infos: wanted infos, by row of the step and by row of the observation that they came with.
        opened: number of blocks so far.
        in_use: int64, rows of blocks that lanes stand in or are on the way to.
    """

    def __init__(self, store: Store, info_keys: tuple[str, ...] = ()) -> None:
        self.store = store
        self.infos, self.obs_infos = InfoTable(info_keys), InfoTable(info_keys)
        self.side = SideTable(store.obs)
        self.dummies, self.blind = Marks(), Marks()
        self.columns: Rows | None = None
        self.in_use = NO_ROWS
        self.opened = 0
        self._blocks: list[Block] = []
        self._log: list[Any] = []

    def fix(self, columns: Rows) -> None:
        """Use these columns from now on."""
        self.columns = columns
        self.side.fix_state(columns.arrays["state"])

    def open(self, length: int) -> Block:
        """Begin a block of `length` steps of all lanes."""
        rows = (length + 1) * self.store.num_envs
        self.opened += 1
        self._blocks.append(Block(self.store.pool.take(rows), rows, self.opened))
        return self._blocks[-1]

    def block_after(self, serial: int) -> Block | None:
        """The first block that was opened after that one, if there is any."""
        return next((block for block in self._blocks if block.serial > serial), None)

    def append(self, rows: Any) -> None:
        """Add steps: a range or int64 array of row numbers."""
        last = self._log[-1] if self._log else None
        if type(rows) is range and type(last) is range and last.stop == rows.start:
            self._log[-1] = range(last.start, rows.stop)
        else:
            self._log.append(rows)

    @property
    def length(self) -> int:
        """Rows that were not handed out, with dummies."""
        return sum(len(rows) for rows in self._log)

    @property
    def count(self) -> int:
        """Rows that were not handed out, without dummies."""
        return self.length - len(self.dummies)

    def rows(self) -> np.ndarray:
        """Rows that were not handed out, int64 [R], in the order of arrival, with dummies."""
        if len(self._log) == 1:
            return numbers_of(self._log[0])
        joined = np.concatenate([NO_ROWS, *(numbers_of(rows) for rows in self._log)])
        # Many pieces, as lanes at their own pace leave them, are joined once.
        self._log = [joined] if self._log else []
        return joined

    def valid_rows(self) -> np.ndarray:
        """The same without dummies."""
        rows = self.rows()
        return rows[~self.dummies.of(rows)] if self.dummies else rows

    def fewest(self, lanes: int) -> int:
        """The most rows, with dummies, that each of some `lanes` lanes has."""
        if not self._log:
            return 0
        counts = np.bincount(self.rows() % self.store.num_envs, minlength=self.store.num_envs)
        return int(np.sort(counts)[-lanes])

    def cut_open(self) -> None:
        """Cut episodes that run on behind the last row of a lane: mark that row, and keep its true next observation."""
        rows = self.rows()
        if not len(rows):
            return
        lanes = self.store.num_envs
        newest = np.full(lanes, -1, np.int64)
        newest[rows % lanes] = rows
        last = newest[newest >= 0]
        columns = self._made_columns().arrays
        over = self.store.terminated[last] | self.store.truncated[last] | columns["cut"][last]
        # Behind a dummy an episode begins: there is nothing to be cut.
        open_ = last[~(over | self.dummies.of(last))]
        columns["cut"][open_] = True
        for row in open_.tolist():
            self.side.add(row, row + lanes, row + lanes)

    def cut(self, row: int, last: int) -> bool:
        """Mark that an episode was cut after the step in `row`, if that is still here; row `last` follows it."""
        found = bool((self.rows() == row).any())
        if found:
            self._made_columns().arrays["cut"][row] = True
            self.side.add(row, last, last)
        return found

    def prune(self) -> None:
        """Forget the ends and marks of steps that an interruption has kept off the tape."""
        rows = self.rows()
        lost = ~np.isin(self.side.rows[: len(self.side)], rows)
        self.side.take(np.flatnonzero(lost))
        for marks in (self.dummies, self.blind):
            marks.keep(rows)

    # -- handing out -------------------------------------------------------------------------------------------------

    def take_rollout(self, length: int) -> Rollout:
        """Hand out the first `length` rows of every lane; each has them."""
        block = self._whole_block(length)
        if block is None:
            return self._gather_rollout(length, np.arange(self.store.num_envs))
        ends = self._take_block(block)
        infos = self._block_infos(block)
        root = self.store.pool.lend(block.base, block.rows)
        leading = (length + 1, self.store.num_envs)
        rows = self.store.rows.view(root, block.base, leading)
        columns = self._made_columns().view(root, block.base, leading)
        index = self.side.rows[ends] - block.base
        final_obs, final_state = self.side.take(ends)
        numbers = np.arange(block.base, block.base + block.rows).reshape(leading)
        return self._rollout({**rows, **infos}, columns, numbers, (index, final_obs, final_state))

    def _take_block(self, block: Block) -> np.ndarray:
        """Take the rows of a block off the tape; return where its ends are in the side table, in order of rows."""
        self._blocks.remove(block)
        known = self.side.rows[: len(self.side)]
        if not self._blocks:
            self._log.clear()
            return known.argsort()
        rows, stop = self.rows(), block.base + block.rows
        self._keep(rows[(rows < block.base) | (rows >= stop)])
        ends = np.flatnonzero((known >= block.base) & (known < stop))
        return ends[np.argsort(known[ends])]

    def _block_infos(self, block: Block) -> dict[str, dict[str, np.ndarray]]:
        """Columns of the infos of a whole block, which are forgotten."""
        if not self.infos:
            return NO_INFOS
        infos = self._take_infos(np.arange(block.base, block.base + block.rows).reshape(-1, self.store.num_envs))
        self._forget_infos(block)
        return infos

    def _take_infos(self, rows: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
        """Columns of the infos of `rows` and of the observations in them."""
        if not self.infos:
            return NO_INFOS
        return {"info": self.infos.columns(rows), "obs_info": self.obs_infos.columns(rows)}

    def _forget_infos(self, block: Block) -> None:
        if self.infos:
            for table in (self.infos, self.obs_infos):
                table.take(block.base, block.base + block.rows)

    def _whole_block(self, length: int) -> Block | None:
        """The first block, if it is one of `length` steps and all of them are there."""
        lanes = self.store.num_envs
        block = self._blocks[0] if self._blocks else None
        if block is None or block.rows != (length + 1) * lanes:
            return None
        if len(self._log) == 1 and type(self._log[0]) is range:
            return block if self._log[0] == range(block.base, block.base + length * lanes) else None
        rows = self.rows()
        there = (rows >= block.base) & (rows < block.base + block.rows)
        return block if int(there.sum()) == length * lanes else None

    def _rollout(self, rows: Tree, columns: Tree, numbers: np.ndarray, side: tuple[np.ndarray, Tree, Tree]) -> Rollout:
        """A rollout from leaves [T+1, N, ...], the last row of which only obs and state have, of rows `numbers`."""
        length = len(numbers) - 1

        def steps(leaf: np.ndarray) -> np.ndarray:
            return leaf[:length]

        return Rollout(
            obs=rows["obs"],
            action=tree.map(steps, columns["action"]),
            reward=rows["reward"][:length],
            terminated=rows["terminated"][:length],
            truncated=rows["truncated"][:length],
            cut=columns["cut"][:length],
            valid=self._take_valid(numbers[:length]),
            blind=self._take_blind(numbers[:length]),
            episode_id=columns["episode_id"][:length],
            step=columns["step"][:length],
            version=columns["version"][:length],
            env_id=numbers[0] % self.store.num_envs,
            final_index=side[0],
            final_obs=side[1],
            extras=tree.map(steps, columns["extras"]),
            state=columns["state"],
            final_state=side[2],
            info=tree.map(steps, rows["info"]),
            obs_info=rows["obs_info"],
        )

    def _take_valid(self, rows: np.ndarray) -> np.ndarray:
        """Which of `rows` are steps."""
        return ~self.dummies.take(rows) if self.dummies else np.ones(rows.shape, np.bool_)

    def _take_blind(self, rows: np.ndarray) -> np.ndarray | None:
        """Which of `rows` are blind; None if there is none."""
        marked = self.blind.take(rows) if self.blind else None
        return marked if marked is not None and marked.any() else None

    def take_lanes(self, length: int, count: int, among: np.ndarray) -> Rollout:
        """Hand out copies of the first `length` rows of the `count` lanes of `among` that were the first to have them.

        Where fewer have them, of these.
        """
        lanes = self.rows() % self.store.num_envs
        full = np.flatnonzero((rank(lanes, self.store.num_envs) == length - 1) & np.isin(lanes, among))
        return self._gather_rollout(length, np.sort(lanes[full[:count]]))

    def _gather_rollout(self, length: int, lanes: np.ndarray) -> Rollout:
        stride, rows = self.store.num_envs, self.rows()
        chosen = (rank(rows % stride, stride) < length) & np.isin(rows % stride, lanes)
        block = rows[chosen]
        block = np.ascontiguousarray(block[np.argsort(block % stride, kind="stable")].reshape(len(lanes), length).T)
        self._keep(rows[~chosen])
        with_next = np.concatenate([block, block[-1:] + stride])
        slots = self.side.find(block.reshape(-1))
        index = np.flatnonzero(slots >= 0)
        final_obs, final_state = self.side.take(slots[index])
        taken = {**tree.take(self.store.rows.arrays, with_next), **self._take_infos(with_next)}
        columns = tree.take(self._made_columns().arrays, with_next)
        self.release()
        return self._rollout(taken, columns, with_next, (index, final_obs, final_state))

    def take_steps(self, count: int) -> Steps:
        """Hand out the first `count` rows in the order of arrival; dummies fall out."""
        lanes = self.store.num_envs
        if not self.dummies and count % lanes == 0 and self._whole_block(count // lanes):
            return self.take_rollout(count // lanes).flatten()
        rows = self.rows()
        valid = ~self.dummies.of(rows)
        stop = int(np.searchsorted(np.cumsum(valid), count)) + 1
        self._keep(rows[stop:])
        self.dummies.take(rows[:stop])
        steps = self._gather_steps(rows[:stop][valid[:stop]])
        self.release()
        return steps

    def _gather_steps(self, rows: np.ndarray) -> Steps:
        """Copies of `rows`; each observation once: those acted upon, then the one behind each lane's last row."""
        lanes, count = self.store.num_envs, len(rows)
        order = np.argsort(rows % lanes, kind="stable")
        lane = rows[order] % lanes
        is_last = np.append(lane[1:] != lane[:-1], True)
        following = np.empty(count, np.int64)
        following[order] = np.where(is_last, count + np.cumsum(is_last) - 1, np.append(order[1:], 0))
        slots = self.side.find(rows)
        ended = np.flatnonzero(slots >= 0)
        following[ended] = ~np.arange(len(ended))
        final_obs, final_state = self.side.take(slots[ended])
        with_next = np.concatenate([rows, rows[order[is_last]] + lanes])
        columns = self._made_columns().arrays
        return Steps(
            obs_rows=tree.take(self.store.obs, with_next),
            obs_index=slice(0, count),
            next_index=following,
            final_obs=final_obs,
            **self._step_columns(rows),
            valid=np.ones(count, np.bool_),
            blind=self._take_blind(rows),
            env_id=rows % lanes,
            episode_id=columns["episode_id"][rows],
            state_rows=tree.take(columns["state"], with_next),
            final_state=final_state,
        )

    def _step_columns(self, rows: np.ndarray) -> dict[str, Tree]:
        columns = self._made_columns().arrays
        taken = {name: tree.take(columns[name], rows) for name in ("action", "extras", "cut", "step", "version")}
        flags = {name: self.store.rows.arrays[name][rows] for name in ("reward", "terminated", "truncated")}
        return taken | flags | self._take_infos(rows)

    def take_episodes(self, since: int) -> Episodes:
        """Hand out the whole episodes among all rows but the first `since`, in the order of their starts.

        All of them have ended; rows of those that were cut stay, dummies fall out.
        """
        lanes = self.store.num_envs
        rows = self.rows()
        kept, rows = rows[:since], rows[since:]
        rows = rows[~self.dummies.take(rows)]
        cut = self._of_cut_episodes(rows)
        self._keep(np.concatenate([kept, rows[cut]]))
        rows = rows[~cut]
        order = np.argsort(rows % lanes, kind="stable")
        slots = self.side.find(rows[order])
        last = np.flatnonzero(slots >= 0)
        first = np.concatenate([[0], last[:-1] + 1])
        by_start = np.argsort(order[first], kind="stable")
        spans = [np.arange(first[e], last[e] + 1) for e in by_start]
        lengths = np.array([len(span) for span in spans], np.int64)
        rows = rows[order[np.concatenate(spans)]]
        final_obs, final_state = self.side.take(slots[last[by_start]])
        columns = self._made_columns().arrays
        starts = rows[np.cumsum(lengths) - lengths]
        episodes = Episodes(
            obs=interleave(tree.take(self.store.obs, rows), final_obs, lengths),
            **self._step_columns(rows),
            episode_id=columns["episode_id"][starts],
            env_id=starts % lanes,
            blind=self._take_blind(rows),
            lengths=lengths,
            state=interleave(tree.take(columns["state"], rows), final_state, lengths),
        )
        self.release()
        return episodes

    def _of_cut_episodes(self, rows: np.ndarray) -> np.ndarray:
        """Whether each row, int64 [R], belongs to an episode that was cut, bool [R]."""
        columns = self._made_columns().arrays
        ids: np.ndarray = columns["episode_id"][rows]
        return np.isin(ids, ids[columns["cut"][rows]])

    def discard(self) -> int:
        """Forget every row that was not handed out; return how many there were, without dummies."""
        count = self.count
        self._log.clear()
        self.side.take(np.arange(len(self.side)))
        for marks in (self.dummies, self.blind):
            marks.keep(NO_ROWS)
        self.release()
        return count

    def _keep(self, rows: np.ndarray) -> None:
        self._log = [rows] if len(rows) else []

    def release(self) -> None:
        """Give back the blocks none of whose rows are left."""
        rows = np.concatenate([self.rows(), self.in_use])
        used = [bool(((rows >= block.base) & (rows < block.base + block.rows)).any()) for block in self._blocks]
        for block, is_used in zip(self._blocks, used, strict=True):
            if not is_used:
                self._forget_infos(block)
                self.store.pool.give_back(block.base, block.rows)
        self._blocks = [block for block, is_used in zip(self._blocks, used, strict=True) if is_used]

    def _made_columns(self) -> Rows:
        assert self.columns is not None, "rows are appended only after the policy has decided once"
        return self.columns
