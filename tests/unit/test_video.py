"""What an evaluation looked like: every frame of the first episodes of lane 0, and the same figures as without."""

import subprocess
import sys

import imageio.v2 as imageio
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import outrider
from helpers.envs import RandomLengthEnv
from outrider.errors import ConfigError, EnvironmentFailure
from outrider.testing.envs import make_case, same
from outrider.vector.env import VecEnv
from outrider.vector.filming import Filming


class SceneEnv(RandomLengthEnv):
    """Its frames show how many steps the episode has; they are 3 x 5 pixels, which no encoder likes."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, render_mode="rgb_array"):
        super().__init__((2, 3, 4), "terminate")
        self.render_mode = render_mode

    def step(self, action):
        return *super().step(action)[:4], {"count": self.count}

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"count": 0}

    def render(self):
        return np.full((3, 5, 3), 20 * self.count, np.uint8)


def policy(obs):
    return np.zeros(len(obs), np.int64)


def frames_of(path):
    """The value of the first pixel of each frame."""
    if path.suffix == ".gif":
        return [int(frame[0, 0, 0]) for frame in imageio.mimread(path)]
    # ImageIO's own reader of videos leaves pipes open.
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, 4, 6, 3)[:, 0, 0, 0].astype(int).tolist()


BACKENDS = (
    outrider.Inline(),
    outrider.Threads(),
    outrider.Processes(2, "fork"),
    outrider.Processes(2, "fork", wait_for=1),
)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("num_envs", (1, 3))
@pytest.mark.parametrize("filmed", (1, 2, 9))
def test_frames_of_whole_episodes_and_the_same_rows(backend, num_envs, filmed):
    if num_envs == 1 and isinstance(backend, outrider.Processes):
        backend = outrider.Processes(1, "fork")
    plan = outrider.Envs(SceneEnv, num_envs, info_keys=("count",))
    frames, found = [], []
    with outrider.make_vec(plan, backend=backend) as envs:
        film = VecEnv(Filming(envs.driver, 0, filmed, frames.append), envs.name, info_keys=envs.info_keys)
        for some in (envs, film):
            with outrider.Collector(some, policy, seed=3) as collector:
                found.append(collector.episodes(4 * num_envs, quota="per_env"))
    assert len(found[0].returns) == 4 * num_envs
    for name in ("obs", "reward", "terminated", "truncated", "boundaries", "env_id", "info"):
        assert same(getattr(found[1], name), getattr(found[0], name))
    lengths = np.diff(found[0].boundaries)[found[0].env_id == 0][:filmed]
    counts = [count for length in lengths for count in range(length + 1)]
    assert [int(frame[0, 0, 0]) for frame in frames] == [20 * count for count in counts]


@pytest.mark.parametrize("backend", BACKENDS[:3], ids=str)
@pytest.mark.parametrize("case", ("nested", "ragged"))
def test_observations_of_every_kind_survive_being_filmed(case, backend):
    frames, found = [], []
    with outrider.make_vec(make_case(case), 3, backend=backend) as envs:
        policy = outrider.RandomPolicy(envs.single_action_space)
        for some in (envs, VecEnv(Filming(envs.driver, 0, 2, frames.append), envs.name)):
            with outrider.Collector(some, policy, seed=3) as collector:
                found.append(collector.episodes(9, quota="per_env"))
    assert all(same(getattr(found[1], name), getattr(found[0], name)) for name in ("obs", "reward", "boundaries"))
    assert frames


@pytest.mark.parametrize("suffix", ("mp4", "gif", "MP4"))
def test_evaluate_writes_a_file_and_changes_no_figure(suffix, tmp_path):
    path = tmp_path / f"first.{suffix}"
    with outrider.make_vec(SceneEnv, 2, backend=outrider.Inline()) as envs:
        plain = outrider.evaluate(envs, policy, 6, seed=1)
        recorded = outrider.evaluate(envs, policy, 6, seed=1, video=path)
        outrider.evaluate(envs, policy, 6, seed=1, video=outrider.Video(tmp_path / f"two.{suffix}", episodes=2, fps=5))
    assert all(same(getattr(recorded, name), getattr(plain, name)) for name in ("returns", "lengths", "terminated"))
    first, second = plain.lengths[plain.env_id == 0][:2].tolist()
    assert len(frames_of(path)) == first + 1
    assert np.allclose(frames_of(path), 20 * np.arange(first + 1), atol=6)
    assert len(frames_of(tmp_path / f"two.{suffix}")) == first + second + 2
    if suffix == "mp4":
        assert imageio_ffmpeg.count_frames_and_secs(path) == (first + 1, pytest.approx((first + 1) / 10))


def test_batches_that_reset_by_themselves_lack_the_last_frame(tmp_path):
    path = tmp_path / "batch.gif"
    with outrider.make_vec(SyncVectorEnv([SceneEnv] * 2, autoreset_mode=AutoresetMode.SAME_STEP)) as envs:
        result = outrider.evaluate(envs, policy, 4, seed=1, video=path)
    first = int(result.lengths[result.env_id == 0][0])
    # The frame after the end shows the next episode.
    assert frames_of(path) == [*range(0, 20 * first, 20), 0]


@pytest.mark.parametrize(
    ("video", "match"),
    (
        ("film.avi", ".mp4 or .gif"),
        ("film", ".mp4 or .gif"),
        ("no/such/folder/film.mp4", "No such file"),
        (3, "a path or a Video"),
    ),
)
def test_videos_that_cannot_be_recorded_are_refused_first(video, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(video, match)
    assert not list(tmp_path.iterdir())


def refused(video, match, make=SceneEnv):
    with outrider.make_vec(make, 2, backend=outrider.Inline()) as envs:
        envs.reset(seed=0)
        with pytest.raises(ConfigError, match=match):
            outrider.evaluate(envs, policy, 4, seed=1, video=video)
        assert envs.step(np.zeros(2, np.int64))[0].tolist() == [[1], [1]], "nothing has been run"


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "film.mp4").mkdir()
    refused(tmp_path / "film.mp4", "directory")


@pytest.mark.parametrize("mode", (None, "human"))
def test_environments_without_frames(mode, tmp_path):
    refused(tmp_path / "film.mp4", "rgb_array", lambda: SceneEnv(mode))


@pytest.mark.parametrize(("package", "name"), (("imageio_ffmpeg", "a.mp4"), ("imageio", "a.mp4"), ("PIL", "a.gif")))
def test_packages_that_are_missing(package, name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    refused(tmp_path / name, r"outrider\[video\]")


@pytest.mark.parametrize("arguments", ({"episodes": 0}, {"fps": 0}, {"fps": float("nan")}))
def test_numbers_that_make_no_sense(arguments):
    with pytest.raises(ConfigError):
        outrider.Video("film.mp4", **arguments)


class DarkEnv(SceneEnv):
    """Its second frame is none."""

    def render(self):
        return super().render() if self.count == 0 else None


class BrokenCameraEnv(SceneEnv):
    def render(self):
        msg = "the camera is broken"
        raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    ((DarkEnv, ConfigError, "height"), (BrokenCameraEnv, EnvironmentFailure, "camera")),
)
def test_frames_that_are_none_end_the_evaluation_and_close_the_file(make, error, match, tmp_path):
    with outrider.make_vec(make, 2, backend=outrider.Inline()) as envs, pytest.raises(error, match=match):
        outrider.evaluate(envs, policy, 4, seed=1, video=tmp_path / "film.mp4")
