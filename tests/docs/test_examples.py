"""Every Python block of the README and of docs/ runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.patience import RUNNING

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text[: match.start()].count("\n") + 1
            found.append((f"{page.relative_to(ROOT)}:{line}", match.group(1)))
    return found


BLOCKS = blocks()


def test_there_are_examples():
    assert any(name.startswith("README.md") for name, _ in BLOCKS)


@pytest.mark.parametrize("code", [code for _, code in BLOCKS], ids=[name for name, _ in BLOCKS])
def test_example_runs(code, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(code)
    result = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUNNING,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_the_first_loop_is_short():
    first = next(code for name, code in BLOCKS if name.startswith("README.md"))
    assert len([line for line in first.splitlines() if line.strip()]) < 15
