"""Files that are old or new, never half written."""

import errno
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from outrider.errors import ReplayError
from outrider.replay import archive

ARRAYS = {
    "one/of two": np.arange(12.0).reshape(3, 4),
    "none": np.zeros((0, 2), np.int32),
    "flags": np.array([True, False]),
    "long": np.arange(archive.CHUNK // 8 + 3),
}


def write(path, number=1, arrays=ARRAYS):
    def fill(writer):
        for name, array in arrays.items():
            writer.array(name, array)
        return {"number": number}

    archive.write(path, fill)


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "file"
    write(path)
    with archive.Reader(path) as reader:
        assert reader.meta["number"] == 1
        for name, array in ARRAYS.items():
            found = reader.array(name)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array, strict=True)
        room = np.full((5, 4), 9.0)
        reader.into("one/of two", room)
        assert room[2:].tolist() == [[8, 9, 10, 11], [9] * 4, [9] * 4]
    # Other tools can read it.
    with np.load(path) as theirs:
        assert theirs["long"][-1] == len(ARRAYS["long"]) - 1


def names(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("cut", ("empty", "half", "end"))
def test_a_torn_file_is_refused(tmp_path, cut):
    path = tmp_path / "file"
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[: {"empty": 0, "half": len(content) // 2, "end": len(content) - 1}[cut]])
    with pytest.raises(ReplayError, match=r"whole file that ReplayBuffer\.save has written"):
        archive.Reader(path)


def test_a_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "file"
    write(path)
    content = bytearray(path.read_bytes())
    content[content.index(np.float64(5).tobytes()) + 7] ^= 1
    path.write_bytes(content)
    with archive.Reader(path) as reader, pytest.raises(ReplayError, match="CRC"):
        reader.array("one/of two")


def test_foreign_files_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ReplayError, match=r"meta\.json"):
        archive.Reader(tmp_path / "other.npz")
    with pytest.raises(ReplayError, match="none of that name"):
        archive.Reader(tmp_path / "nothing")


def test_a_newer_format_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "VERSION", 2)
    write(tmp_path / "file")
    monkeypatch.undo()
    with pytest.raises(ReplayError, match="version 2"):
        archive.Reader(tmp_path / "file")


def test_an_array_of_other_rows_is_refused(tmp_path):
    write(tmp_path / "file")
    with archive.Reader(tmp_path / "file") as reader:
        for wrong in (np.zeros((2, 4)), np.zeros((3, 5)), np.zeros((3, 4), np.float32)):
            with pytest.raises(ReplayError, match="one/of two"):
                reader.into("one/of two", wrong)
        with pytest.raises(ReplayError, match="missing"):
            reader.array("missing")


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write(path)

    def full(writer):
        writer.array("flags", ARRAYS["flags"])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ReplayError, match="No space left"):
        archive.write(path, full)
    with pytest.raises(ZeroDivisionError):
        archive.write(path, lambda _: 1 / 0)
    with pytest.raises(ReplayError, match="No such file"):
        write(tmp_path / "no folder" / "file")
    assert names(tmp_path) == ["file"]
    with archive.Reader(path) as reader:
        assert reader.meta["number"] == 1


KILLED = """
import os, signal, sys
import numpy as np
from outrider.replay import archive

def fill(writer):
    writer.array("long", np.zeros(1 << 22))
    os.kill(os.getpid(), signal.SIGKILL)

archive.write(sys.argv[1], fill)
"""


def test_a_writer_that_is_killed_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    write(path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert names(tmp_path) == [".file.partial", "file"]
    with archive.Reader(path) as reader:
        assert reader.meta["number"] == 1
    # The next one cleans up behind it.
    write(path, 2)
    assert names(tmp_path) == ["file"]
    with archive.Reader(path) as reader:
        assert reader.meta["number"] == 2


def test_writers_of_one_file_wait_for_each_other(tmp_path):
    path = tmp_path / "file"

    def save(number):
        for _ in range(20):
            write(path, number)

    threads = [threading.Thread(target=save, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    seen = set()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            with archive.Reader(path) as reader:
                seen.add(reader.meta["number"])
                reader.array("long")
    for thread in threads:
        thread.join()
    assert seen <= {1, 2}
    assert names(tmp_path) == ["file"]


def test_a_link_stays_one_and_a_mode_stays(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    write(path)
    path.chmod(0o600)
    link.symlink_to(path)
    write(link, 2)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    with archive.Reader(path) as reader:
        assert reader.meta["number"] == 2


def test_places_that_are_none_are_refused(tmp_path):
    write(tmp_path / "file")
    for bad in ("", ".", "/", tmp_path, tmp_path / "file" / "x", tmp_path / ("long" * 80)):
        with pytest.raises(ReplayError):
            write(bad)


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReplayError, match="would be replaced"):
        write(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    assert names(tmp_path) == ["pipe"]
