"""Files of frames: what can go wrong is said before the first one is there."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.vector.env import VecEnv
from outrider.vector.filming import Filming
from outrider.vector.plan import check_count

__all__ = ["Video", "filmed"]

SUFFIXES = {".mp4": ("imageio", "imageio_ffmpeg"), ".gif": ("imageio", "PIL")}
"""What each kind of file needs."""

DEFAULT_FPS = 30.0
"""Where environments do not say under "render_fps" how fast they are meant to run."""


@dataclass(frozen=True)
class Video:
    """What to record of an evaluation: the first episodes of lane 0, with the frame at the end of each.

    Args:
        path: the file, which is replaced if it exists. It ends in .mp4 (H.264) or in .gif.
        episodes: how many, one after the other; fewer if lane 0 has no more.
        fps: frames per second; None: what the environments say under "render_fps", or 30.

    Raises:
        ConfigError: another ending, or a number that makes no sense.
    """

    path: str | os.PathLike[str]
    episodes: int = 1
    fps: float | None = None

    def __post_init__(self) -> None:
        path: object = self.path
        if not isinstance(path, (str, os.PathLike)):
            raise _wrong("a path or a Video", repr(path), "pass a file name, or outrider.Video(path, ...)")
        check_count(self.episodes, "Video(episodes=...)")
        if self.file.suffix.lower() not in SUFFIXES:
            raise _wrong(
                f"a file name that ends in {' or '.join(SUFFIXES)}", repr(str(self.path)), "choose one of those"
            )
        if self.fps is not None and not 0 < self.fps < float("inf"):
            raise _wrong("frames per second, a number above 0", repr(self.fps), "leave it out, or pass e.g. fps=30")

    @property
    def file(self) -> Path:
        """The path as such."""
        return Path(self.path)


@contextmanager
def filmed(envs: VecEnv, video: Video) -> Iterator[VecEnv]:
    """The same environments; what runs in them is recorded until the end of the block, also if that is a failure.

    Raises:
        ConfigError: the environments have no frames, the file cannot be written, or packages are missing.
    """
    if envs.render_mode != "rgb_array":
        fix = "make them with one: make_vec(lambda: gymnasium.make(name, render_mode='rgb_array'), n)"
        raise _wrong("environments made with render_mode='rgb_array'", f"render_mode={envs.render_mode!r}", fix)
    suffix = video.file.suffix.lower()
    _check_packages(suffix)
    _check_writable(video.file)
    fps = float(video.fps or envs.metadata.get("render_fps") or DEFAULT_FPS)
    writer = _writer(video.file, suffix, fps)
    try:
        driver = Filming(envs.driver, envs.lanes[0], video.episodes, lambda frame: writer.append_data(_even(frame)))
        yield VecEnv(driver, envs.name, info_keys=envs.info_keys)
    finally:
        writer.close()


def _check_packages(suffix: str) -> None:
    missing = [name for name in SUFFIXES[suffix] if importlib.util.find_spec(name) is None]
    if missing:
        raise _wrong(f"the packages that write {suffix} files", f"no {' and no '.join(missing)}", _INSTALL)
    if suffix == ".mp4":
        import imageio_ffmpeg

        try:
            imageio_ffmpeg.get_ffmpeg_exe()
        except RuntimeError as error:
            raise _wrong("an ffmpeg for this system", f"none ({error})", "install one, or record a .gif") from error


def _check_writable(file: Path) -> None:
    existed = file.exists()
    try:
        with file.open("ab"):
            pass
    except OSError as error:
        raise _wrong(
            "a file that can be written", f"{str(file)!r} ({error.strerror})", "choose another path"
        ) from error
    if not existed:
        file.unlink()


def _writer(file: Path, suffix: str, fps: float) -> Any:
    import imageio.v2 as imageio

    if suffix == ".gif":
        return imageio.get_writer(file, duration=1000 / fps, loop=0)
    return imageio.get_writer(file, fps=fps, macro_block_size=2)


def _even(frame: Any) -> np.ndarray:
    """The frame with an even number of rows and columns, which H.264 needs: the last ones are repeated.

    Raises:
        ConfigError: it is no picture.
    """
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        found = f"shape {frame.shape}, dtype {frame.dtype}" if isinstance(frame, np.ndarray) else repr(frame)[:60]
        raise _wrong("frames [height, width, 3] of uint8", found, "let render() return such an array")
    odd = frame.shape[0] % 2, frame.shape[1] % 2
    return np.pad(frame, ((0, odd[0]), (0, odd[1]), (0, 0)), "edge") if any(odd) else frame


_INSTALL = "pip install 'outrider[video]'"


def _wrong(expected: str, found: str, fix: str) -> ConfigError:
    return ConfigError(explain(expected=expected, found=found, where="video", fix=fix))
