"""Our environments as Gymnasium's."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import polygrad
from polygrad.envs import IDS

# Those that Gymnasium has, too.
SAME = {
    "polygrad/CartPole-v0": "CartPole-v1",
    "polygrad/Acrobot-v0": "Acrobot-v1",
    "polygrad/MountainCar-v0": "MountainCar-v0",
    "polygrad/MountainCarContinuous-v0": "MountainCarContinuous-v0",
    "polygrad/Pendulum-v0": "Pendulum-v1",
}


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_nothing_wrong(name):
    env = gymnasium.make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # They are not drawn, and that their bounds are infinite is Gymnasium's own way.
        for text in ["render", "infinity", "symmetric and normalized"]:
            warnings.filterwarnings("ignore", message=f".*{text}.*")
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name, other", SAME.items())
def test_spaces_are_gymnasiums(name, other):
    ours, theirs = gymnasium.make(name), gymnasium.make(other)
    assert ours.action_space == theirs.action_space
    for bound in ["low", "high"]:
        found, wanted = (getattr(env.observation_space, bound) for env in (ours, theirs))
        # Where Gymnasium has the largest number there is, nothing bounds it.
        np.testing.assert_allclose(np.where(np.abs(found) > 1e30, 0, found), np.where(np.abs(wanted) > 1e30, 0, wanted))


def test_cartpole_falls_as_gymnasiums_does():
    ours, theirs = gymnasium.make("polygrad/CartPole-v0"), gymnasium.make("CartPole-v1")
    for seed in range(5):
        seen, _ = ours.reset(seed=seed)
        theirs.reset()
        theirs.unwrapped.state = tuple(map(float, seen))
        for step in range(500):
            action = (step * 7 + seed) % 3 % 2
            a, b = ours.step(action), theirs.step(action)
            np.testing.assert_allclose(a[0], b[0], rtol=1e-3, atol=1e-4)
            assert a[1:4] == b[1:4]
            if a[2]:
                break
        assert a[2]


def test_an_episode_ends_with_its_own_observation():
    env = gymnasium.make("polygrad/CartPole-v0")
    env.reset(seed=3)
    over = False
    while not over:
        seen, reward, over, cut, _ = env.step(1)
    # The pole has fallen, and not begun anew.
    assert abs(seen[2]) > 0.2 and reward == 1.0 and not cut
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        env.step(1)
    assert abs(env.reset()[0]).max() <= 0.05
    env.step(1)


def test_many_step_as_one_does():
    envs = gymnasium.make_vec("polygrad/GridWorld-v0", num_envs=6)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert envs.observation_space.shape == (6, 4) and envs.single_action_space.n == 4
    threaded = gymnasium.make_vec("polygrad/GridWorld-v0", num_envs=6, threads=2)
    seen, other = envs.reset(seed=5)[0], threaded.reset(seed=5)[0]
    envs.action_space.seed(1)
    ended = 0
    for _ in range(300):
        np.testing.assert_array_equal(seen, other)
        assert seen in envs.observation_space
        actions = envs.action_space.sample()
        (seen, rewards, terminated, truncated, infos), (other, *_) = envs.step(actions), threaded.step(actions)
        assert rewards.dtype == np.float64 and terminated.dtype == truncated.dtype == bool
        over = terminated | truncated
        assert ("final_obs" in infos) == over.any()
        for row in np.flatnonzero(over):
            ended += 1
            assert infos["final_obs"][row] in envs.single_observation_space and infos["_final_obs"][row]
            if terminated[row]:
                assert (infos["final_obs"][row][:2] == infos["final_obs"][row][2:]).all()
        for row in np.flatnonzero(~over if over.any() else over):
            assert infos["final_obs"][row] is None
    assert ended > 10
    assert (envs.reset(seed=5)[0] == envs.reset(seed=5)[0]).all()
    assert not (envs.reset()[0] == envs.reset()[0]).all()


def test_statistics_wrappers_and_training_take_them():
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.make_vec("polygrad/CartPole-v0", num_envs=8))
    seen = []
    polygrad.rl.train(
        envs, total_steps=20_000, seed=1, num_steps=32, callback=lambda known: seen.append(known) and None
    )
    assert seen[-1]["return"] > seen[5]["return"] and len(envs.return_queue) > 50
    policy = polygrad.rl.train(
        gymnasium.make_vec("polygrad/Pendulum-v0", num_envs=2), "sac", total_steps=300, learning_starts=100
    )
    action, _ = policy.predict(np.zeros(3))
    assert action in gymnasium.make("polygrad/Pendulum-v0").action_space


@pytest.mark.parametrize(
    "imports",
    ["gymnasium, polygrad", "polygrad, gymnasium", "polygrad.envs, gymnasium", "polygrad, gymnasium.spaces"],
)
def test_they_are_there_in_either_order(imports):
    code = f"""
import sys, importlib.util, {imports.split(", ")[0]}
importlib.util.find_spec("gymnasium")
import {imports}
assert not any(type(finder).__module__ == "polygrad._register" for finder in sys.meta_path)
gymnasium.make("polygrad/TMaze-v0").reset(seed=1)
gymnasium.make_vec("polygrad/TMaze-v0", num_envs=2)
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_an_old_gymnasium_is_told_and_stays_usable(tmp_path):
    (tmp_path / "gymnasium.py").write_text("here = True")
    for imports in ["gymnasium, polygrad", "polygrad, gymnasium"]:
        code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {imports}; print(gymnasium.here)"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (0, "True\n")
        assert "environments are not registered, which need Gymnasium 1.1 or newer: " in run.stderr


def test_what_cannot_be_made_is_told():
    with pytest.raises(ValueError, match="not drawn here"):
        gymnasium.make("polygrad/CartPole-v0", render_mode="human")
    with pytest.raises(polygrad.Error, match="nothing that could step"):
        gymnasium.make_vec("polygrad/CartPole-v0", num_envs=0)
    with pytest.raises(polygrad.Error, match="no memory for 1000000000000"):
        gymnasium.make_vec("polygrad/CartPole-v0", num_envs=10**12)
    with pytest.raises(polygrad.Error, match="has several agents"):
        polygrad.envs.Env("connect-four")
    envs = gymnasium.make_vec("polygrad/CartPole-v0", num_envs=2)
    with pytest.raises(polygrad.Error, match="reset"):
        envs.step(np.zeros(2, int))
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"\[3\], and \[2\] is expected"):
        envs.step(np.zeros(3, int))
    with pytest.raises(polygrad.Error, match="7"):
        envs.step(np.array([0, 7]))
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="reset_mask"):
        envs.reset(options={"reset_mask": np.array([True, False])})
