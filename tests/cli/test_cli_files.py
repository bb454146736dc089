"""What `file.py:name` can name, and what is said when it names nothing."""

import pickle
import sys

import gymnasium
import numpy as np
import pytest

import outrider
from outrider.cli.files import FileObject
from outrider.cli.sources import plan_of, policy_of
from outrider.errors import ConfigError
from outrider.policies.base import Context

POLICIES = """
import numpy as np
import outrider

LOADS = []
LOADS.append(1)

def ones(obs):
    return np.ones(len(obs), np.int64)

class Fixed(outrider.Policy):
    def __init__(self, action=1):
        self.action = action
    def act(self, obs, state, ctx):
        return {"action": np.full(len(obs), self.action)}

class Callable_:
    def __call__(self, obs):
        return ones(obs)

instance = Fixed()
callable_instance = Callable_()
array_function = np.sign

def make():
    return Fixed()

def make_function():
    return ones

def make_nothing():
    return None

number = 3
"""

ENVS = """
import gymnasium

class Pole(gymnasium.Wrapper):
    def __init__(self, length=5):
        super().__init__(gymnasium.make("CartPole-v1"))

class Needy(Pole):
    def __init__(self, length):
        super().__init__()

def make():
    return Pole()

instance = Pole()
"""


@pytest.fixture
def policies(tmp_path):
    path = tmp_path / "policies.py"
    path.write_text(POLICIES)
    return path


@pytest.fixture
def envs(tmp_path):
    path = tmp_path / "envs.py"
    path.write_text(ENVS)
    return path


def actions(policy):
    return policy.act(np.ones((2, 4)), None, Context.start(2))["action"].tolist()


@pytest.mark.parametrize(
    "name", ("ones", "Fixed", "instance", "callable_instance", "Callable_", "make", "make_function")
)
def test_policies(policies, name):
    source = policy_of(f"{policies}:{name}")
    assert source.name == f"policies.py:{name}"
    make = pickle.loads(pickle.dumps(source.maker(gymnasium.spaces.Discrete(2), 0)))
    assert actions(make()) == [1, 1]


def test_function_without_a_signature_is_a_function(policies):
    policy = policy_of(f"{policies}:array_function").maker(None, 0)()
    assert policy.act(np.array([-2.0, 3.0]), None, Context.start(2))["action"].tolist() == [-1, 1]


def test_no_policy_named():
    source = policy_of(None)
    assert source.name == "RandomPolicy"
    make = pickle.loads(pickle.dumps(source.maker(gymnasium.spaces.Discrete(2), 0)))
    assert isinstance(make(), outrider.RandomPolicy)


@pytest.mark.parametrize("name", ("make_nothing", "number"))
def test_not_a_policy(policies, name):
    make = policy_of(f"{policies}:{name}").maker(None, 0)
    with pytest.raises(ConfigError, match=rf"policies\.py:{name}: .*expected an outrider\.Policy"):
        make()


def test_a_file_runs_once(policies):
    for _ in range(2):
        assert FileObject.parse(f"{policies}:LOADS", "--policy").load() == [1]


@pytest.mark.parametrize("name", ("Pole", "make"))
def test_envs(envs, name):
    plan = plan_of(f"{envs}:{name}", 3)
    assert (plan.name, plan.num_envs) == (f"envs.py:{name}", 3)
    env = pickle.loads(pickle.dumps(plan.factories[0]))()
    assert isinstance(env, gymnasium.Env)
    env.close()


@pytest.mark.parametrize(
    ("name", "found"), (("Needy", "needs the arguments length"), ("instance", "an object of type Pole"))
)
def test_no_factory(envs, name, found):
    with pytest.raises(ConfigError, match=rf"envs\.py:{name}: .*{found}.*def make"):
        plan_of(f"{envs}:{name}", 1)


def test_ids():
    assert plan_of("CartPole-v1", 2).name == "CartPole-v1"
    assert plan_of("minigrid:MiniGrid-Empty-5x5-v0", 2).num_envs == 2
    with pytest.raises(ConfigError, match="did you mean CartPole-v1"):
        plan_of("CartPol-v1", 2)


def test_an_id_that_an_installed_package_registers(monkeypatch):
    for name in [name for name in gymnasium.registry if name.startswith("MiniGrid-")]:
        monkeypatch.delitem(gymnasium.registry, name)
    with pytest.raises(ConfigError, match=r"minigrid:MiniGrid-Empty-5x5-v0$"):
        plan_of("MiniGrid-Empty-5x5-v0", 2)


@pytest.mark.parametrize("text", ("policies.py", "policies:ones", "policies.py:", "policies.py:not a name"))
def test_other_forms(text):
    with pytest.raises(ConfigError, match=r"--policy: expected file\.py:name, found '"):
        policy_of(text)


def test_missing_file(policies):
    with pytest.raises(ConfigError, match=r"no file .*policy\.py'; did you mean policies\.py\?"):
        policy_of(f"{policies.with_name('policy.py')}:ones")


def test_missing_name(policies):
    with pytest.raises(ConfigError, match=r"policies\.py:one: the file has no 'one'; did you mean ones"):
        policy_of(f"{policies}:one")
    with pytest.raises(ConfigError, match="it has Callable_, Fixed"):
        policy_of(f"{policies}:xyz")


@pytest.mark.parametrize(
    ("text", "what", "line"),
    (
        ("import os\nos.nothing\n", "AttributeError: module 'os' has no attribute 'nothing'", "line 2: os.nothing"),
        ("x = 1\ndef f(:\n", "SyntaxError: invalid syntax", "line 2"),
        ("import sys\n\nsys.exit(4)\n", "SystemExit: 4", "line 3: sys.exit"),
        ("import json\njson.loads('[')\n", "JSONDecodeError: Expecting value", "line 2: json.loads"),
    ),
)
def test_import_errors_name_the_line_of_the_file(tmp_path, text, what, line):
    path = tmp_path / "broken.py"
    path.write_text(text)
    before = set(sys.modules)
    with pytest.raises(ConfigError) as caught:
        policy_of(f"{path}:x")
    assert f"broken.py: the file cannot be imported: {what}" in str(caught.value)
    assert f"{path}, {line}" in str(caught.value)
    assert not [name for name in set(sys.modules) - before if "broken" in name]


def test_neighbours_can_be_imported_but_hide_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_policy.py").write_text("VALUE = 7\n")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('not this one')\n")
    path = tmp_path / "policy.py"
    path.write_text("import colorsys\nfrom neighbour_of_policy import VALUE\n")
    assert FileObject.parse(f"{path}:VALUE", "--policy").load() == 7


def test_dataclasses_in_files_work(tmp_path):
    path = tmp_path / "policy.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass, field, KW_ONLY\n"
        "@dataclass\nclass Settings:\n    _: KW_ONLY\n    size: int = 3\n"
    )
    assert FileObject.parse(f"{path}:Settings", "--policy").load()(size=4).size == 4
