"""Random spaces in random modes give what Gymnasium's own vector environment gives, to the last bit."""

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import outrider
from outrider.testing.envs import Sampled, same
from outrider.testing.gymnasium_face import walk

SHAPES = [(1,), (3,), (2, 3), (2, 1, 2)]


@st.composite
def boxes(draw, shapes):
    dtype = np.dtype(
        draw(st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int16", "int64", "uint32"]))
    )
    low, high = (0, 100) if dtype.kind == "u" else (-100, 100)
    return spaces.Box(low, high, draw(st.sampled_from(shapes)), dtype)


LEAVES = (
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-5, 5)),
    st.builds(
        lambda shape, most: spaces.MultiDiscrete(np.arange(np.prod(shape)).reshape(shape) % most + 1),
        st.sampled_from([(1,), (3,), (2, 2)]),
        st.integers(1, 5),
    ),
    st.builds(spaces.MultiBinary, st.sampled_from([1, 4, (2, 2)])),
)


def trees(shapes):
    return st.recursive(
        st.one_of(boxes(shapes), *LEAVES),
        lambda inner: st.one_of(
            st.builds(spaces.Dict, st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)),
            st.builds(spaces.Tuple, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        ),
        max_leaves=4,
    )


OBSERVED = trees([(), *SHAPES])
# A scalar of a Box reaches the environments of Gymnasium as a NumPy scalar, which is no member of the space.
ACTED = trees(SHAPES)
BACKENDS = st.sampled_from([outrider.Inline(), outrider.Inline(), outrider.Threads(1), outrider.Processes(1, "fork")])


@given(
    observed=OBSERVED, acted=ACTED, mode=st.sampled_from(AutoresetMode), num_envs=st.integers(1, 3), backend=BACKENDS
)
@settings(max_examples=40)
def test_random_spaces_in_random_modes_equal_gymnasium(observed, acted, mode, num_envs, backend):
    def make():
        return Sampled(observed, acted)

    theirs = SyncVectorEnv([make] * num_envs, autoreset_mode=mode)
    with outrider.make_vec(make, num_envs, backend=backend, autoreset_mode=mode) as ours:
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        assert same(ours.reset(seed=3), theirs.reset(seed=3))
        walk(ours, theirs, 12)
    theirs.close()
