"""The leak fixture itself, seen from outside: a pytest run of its own, with one test for each kind of leak."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from helpers.patience import RUNNING

LEAKY = """
import multiprocessing, os, subprocess, sys, threading, time
from multiprocessing.shared_memory import SharedMemory

import pytest
from helpers import leaks

kept = []


@pytest.fixture(autouse=True)
def patience(request):
    # What stays for ever need not be waited for; what ends by itself has all the time that it needs.
    leaks.GRACE_S = 1.0 if "leaves" in request.node.name else 60.0


def sleeper():
    return subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_leaves_a_process():
    kept.append(sleeper())

def test_leaves_an_orphan():
    subprocess.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 &"], check=True)

def test_leaves_a_worker_of_the_forkserver():
    worker = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(60,), daemon=True)
    worker.start()
    kept.append(worker)

def test_leaves_a_thread():
    thread = threading.Thread(target=threading.Event().wait, daemon=True, name="forgotten")
    thread.start()

def test_leaves_a_descriptor():
    kept.append(os.open("/dev/null", os.O_RDONLY))

def test_leaves_a_pipe():
    kept.extend(os.pipe())

def test_leaves_shared_memory():
    # Other tests that run at the same time see that somebody uses it; the resource tracker removes it at exit.
    kept.append(SharedMemory(create=True, size=8))


def test_clean_orphan_that_ends():
    subprocess.run(["sh", "-c", "sleep 0.05 >/dev/null 2>&1 &"], check=True)

def test_clean_process_that_was_joined():
    process = sleeper()
    process.kill()
    process.wait()

@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_clean_worker(method):
    worker = multiprocessing.get_context(method).Process(target=time.sleep, args=(0,))
    worker.start()
    worker.join()
    assert worker.exitcode == 0

def test_clean_shared_memory():
    memory = SharedMemory(create=True, size=8)
    memory.close()
    memory.unlink()

def test_clean_thread_that_ends():
    threading.Timer(0.05, print).start()

def test_clean_garbage():
    cycle = list(multiprocessing.Pipe())
    cycle.append(cycle)

def test_clean_zarr(tmp_path):
    import zarr
    array = zarr.create_array(tmp_path, shape=(100,), chunks=(10,), dtype="f4")
    array[:] = 1
    assert array[:].sum() == 100

def test_clean_shared_memory_of_another_program():
    assert leaks.used_elsewhere(os.environ["FOREIGN_SHM"])
"""

LEAKS = {
    "test_leaves_a_process": ": sleep 60",
    "test_leaves_an_orphan": ": sleep 60",
    "test_leaves_a_worker_of_the_forkserver": "process ",
    "test_leaves_a_thread": "thread 'forgotten' (daemon=True)",
    "test_leaves_a_descriptor": "-> /dev/null",
    "test_leaves_a_pipe": "-> pipe:[",
    "test_leaves_shared_memory": "shared memory /dev/shm/psm_",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For each test of the inner run its error, empty if it passed."""
    folder = tmp_path_factory.mktemp("leaky")
    (folder / "test_leaky.py").write_text(LEAKY)
    # Nothing of this project's own configuration: only the plugin under test.
    options = (
        "-c",
        os.devnull,
        "--rootdir=.",
        "-p",
        "helpers.leaks",
        "-p",
        "no:cacheprovider",
        "--junitxml=out.xml",
    )
    foreign = Path(f"/dev/shm/outrider-test-{os.getpid()}")  # noqa: S108 - its name is that of this process
    with foreign.open("wb"):
        try:
            run = subprocess.run(
                [sys.executable, "-m", "pytest", *options, "test_leaky.py"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "FOREIGN_SHM": foreign.name},
                capture_output=True,
                text=True,
                timeout=RUNNING,
                check=False,
            )
        finally:
            foreign.unlink()
    assert run.returncode == 1, run.stdout + run.stderr
    found: dict[str, str] = {}
    for case in ET.parse(folder / "out.xml").iter("testcase"):  # noqa: S314 - pytest wrote it, just now
        problems = [node for node in case if node.tag in ("error", "failure")]
        name = case.attrib["name"]
        found[name] = found.get(name, "") + "".join(f"{node.attrib['message']}\n{node.text}" for node in problems)
    return found


@pytest.mark.parametrize("name", LEAKS)
def test_leak_is_reported(outcomes, name):
    assert "the test left behind:" in outcomes[name]
    assert LEAKS[name] in outcomes[name]


def test_clean_tests_pass(outcomes):
    clean = {name: error for name, error in outcomes.items() if name not in LEAKS}
    assert len(clean) == 10
    assert clean == dict.fromkeys(clean, "")
