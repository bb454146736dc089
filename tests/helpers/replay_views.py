"""What each view should make of the plain lists of steps."""

import numpy as np

from helpers.plain_rows import assert_equal, state_of, tree_of
from outrider import tree


def numbers_to_tree(numbers, known, nesting):
    """Observations known by numbers; empty where they are not known."""
    found = tree_of(np.where(known, numbers, 0), nesting)

    def empty(leaf):
        leaf[~known] = "" if leaf.dtype.hasobject else 0

    tree.map(empty, found)
    return found


def check_transitions(batch, windows, gamma, nesting):
    """`Transitions` of these lists of steps."""
    firsts, lasts = [window[0] for window in windows], [window[-1] for window in windows]
    assert_equal(batch.obs, tree_of(np.array([one.obs for one in firsts], np.int64), nesting))
    following = np.array([one.next_obs for one in lasts], np.int64)
    known = np.array([not one.blind for one in lasts], bool)
    assert_equal(batch.next_obs, numbers_to_tree(following, known, nesting))
    assert batch.terminated.tolist() == [one.terminated for one in lasts]
    assert batch.truncated.tolist() == [one.truncated for one in lasts]
    assert batch.step.tolist() == [one.step for one in firsts]
    assert batch.env_id.tolist() == [one.lane for one in firsts]
    assert batch.action.tolist() == [one.obs * 7 % 1009 for one in firsts]
    returns = [sum(gamma**i * one.reward for i, one in enumerate(window)) for window in windows]
    np.testing.assert_allclose(batch.reward, returns, rtol=1e-14)
    assert batch.discount.tolist() == [0.0 if window[-1].terminated else gamma ** len(window) for window in windows]


def fits(window, view):
    """Whether `Sequences` may begin with the first of these steps, of which there are `view.length` at most."""
    is_long_enough = len(window) == view.length or (view.pad and len(window) > view.burn_in)
    return window[0].step % view.stride == 0 and is_long_enough and window[-1].is_usable_end


def check_sequences(batch, windows, view, nesting):
    """`Sequences` of these lists of steps."""
    shape = (view.length, len(windows))
    assert batch.lengths.tolist() == [len(window) for window in windows]
    assert batch.burn_in == view.burn_in
    assert batch.mask.shape == shape

    def column(get, dtype):
        filled = np.zeros(shape, dtype)
        for b, window in enumerate(windows):
            filled[: len(window), b] = [get(one) for one in window]
        return filled

    assert_equal(batch.mask, column(lambda one: True, bool))
    assert_equal(batch.is_first, column(lambda one: one.step == 0, bool))
    assert_equal(batch.cut, column(lambda one: one.end == "cut", bool))
    for name, dtype in (("terminated", bool), ("truncated", bool), ("step", np.int64), ("version", np.int64)):
        assert_equal(getattr(batch, name), column(lambda one, name=name: getattr(one, name), dtype))
    assert_equal(batch.reward, column(lambda one: one.reward, np.float64))
    assert_equal(batch.action, column(lambda one: one.obs * 7 % 1009, np.int64))
    numbers, known = (
        np.zeros((view.length + 1, len(windows)), np.int64),
        np.zeros((view.length + 1, len(windows)), bool),
    )
    for b, window in enumerate(windows):
        numbers[: len(window) + 1, b] = [one.obs for one in window] + [window[-1].next_obs]
        known[: len(window) + 1, b] = [True] * len(window) + [not window[-1].blind]
    assert_equal(batch.obs, numbers_to_tree(numbers, known, nesting))
    firsts = [window[0] for window in windows]
    assert batch.env_id.tolist() == [one.lane for one in firsts]
    assert_equal(batch.state, state_of(np.array([one.obs if one.has_state else 0 for one in firsts], np.int64)))


def is_whole(window):
    """Whether all steps to the end of an episode, or to the newest, are a whole episode."""
    return window[0].step == 0 and window[-1].end != "run" and window[-1].is_usable_end


def check_episodes(batch, windows, nesting):
    """`WholeEpisodes` of these lists of steps."""
    episodes = batch.episodes
    episodes.check()
    flat = [one for window in windows for one in window]
    assert episodes.lengths.tolist() == [len(window) for window in windows]
    numbers = [number for window in windows for number in [*[one.obs for one in window], window[-1].next_obs]]
    known = [known for window in windows for known in [*[True for _ in window], not window[-1].blind]]
    assert_equal(episodes.obs, numbers_to_tree(np.array(numbers, np.int64), np.array(known, bool), nesting))
    for name in ("terminated", "truncated", "reward", "step", "version"):
        assert getattr(episodes, name).tolist() == [getattr(one, name) for one in flat]
    assert episodes.action.tolist() == [one.obs * 7 % 1009 for one in flat]
    assert episodes.cut.tolist() == [one.end == "cut" for one in flat]
    assert episodes.env_id.tolist() == [window[0].lane for window in windows]
    blind = [one.blind for one in flat]
    assert (episodes.blind.tolist() if any(blind) else episodes.blind) == (blind if any(blind) else None)


def hindsight_reward(achieved, desired, info):
    return achieved[:, 0] - desired[:, 0]


def hindsight_terminated(achieved, desired, info):
    return achieved[:, 0] == desired[:, 0]


def is_over(window):
    """Whether `Hindsight` may draw the first of all steps to the end of an episode, or to the newest."""
    return window[-1].end != "run" and not window[-1].blind


def check_hindsight(batch, windows, befores, view):
    """`Hindsight` of the first of these lists of steps, which come behind those of `befores`."""
    assert_equal(batch.obs["achieved_goal"], tree_of([window[0].obs for window in windows], "array"))
    assert_equal(batch.next_obs["achieved_goal"], tree_of([window[0].next_obs for window in windows], "array"))
    changed = []
    for i, (window, earlier) in enumerate(zip(windows, befores, strict=True)):
        first, goal = window[0], float(batch.obs["desired_goal"][i, 0])
        assert batch.truncated[i] == first.truncated
        assert batch.discount[i] == (0.0 if batch.terminated[i] else view.gamma)
        changed.append(goal.is_integer())
        if changed[-1]:
            assert batch.next_obs["desired_goal"][i, 0] == goal
            there = {"final": window[-1:], "future": window, "episode": [*earlier, *window]}[view.strategy]
            assert goal in [one.next_obs for one in there]
            assert batch.reward[i] == first.next_obs - goal
            assert batch.terminated[i] == (first.next_obs == goal)
        else:
            assert (goal, batch.next_obs["desired_goal"][i, 0]) == (first.obs + 0.5, first.next_obs + 0.5)
            assert batch.reward[i] == first.reward
            assert batch.terminated[i] == first.terminated
    return changed
