"""Policies that learn in Gymnasium's environments."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import polygrad
from polygrad.rl import Policy, train

# rl-zoo3's settings of PPO for CartPole.
CARTPOLE = dict(
    num_steps=32, num_minibatches=1, update_epochs=20, learning_rate=[1e-3, 0], gamma=0.98, gae_lambda=0.8,
    clip=[0.2, 0], clip_value=False, entropy_coefficient=0, value_coefficient=1,
)  # fmt: skip


def evaluated(policy, name, episodes=20):
    env, returns = gymnasium.make(name), []
    for seed in range(episodes):
        (observation, _), total, over = env.reset(seed=seed), 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy.predict(observation)[0])
            total, over = total + reward, terminated or truncated
        returns.append(total)
    return np.mean(returns)


def test_cartpole_is_solved():
    envs = gymnasium.make_vec("CartPole-v1", num_envs=8)
    policy = train(envs, total_steps=100_000, seed=1, **CARTPOLE)
    assert evaluated(policy, "CartPole-v1") >= 475
    assert policy.algorithm == "ppo" and policy.mean_return > 200


class Counting(gymnasium.Env):
    """Observes the number of the step; an episode of `length` steps is worth `length`, and is cut short or ends."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def __init__(self, length, cut=False):
        self.length, self.cut = length, cut

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        over = self.steps == self.length
        return np.full(1, float(self.steps)), 1.0, over and not self.cut, over and self.cut, {}


def counting(mode, cut=False):
    return SyncVectorEnv([lambda length=length: Counting(length, cut) for length in (3, 5)], autoreset_mode=mode)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_every_autoreset_mode_gives_the_same_episodes(mode, cut, algorithm):
    settings = {"ppo": {"num_steps": 16}, "dqn": {"learning_starts": 64}}[algorithm]
    seen = []
    train(counting(mode, cut), algorithm, total_steps=640, callback=lambda known: seen.append(known) and None, **settings)
    # In as many steps there are fewer episodes where a step goes into each reset.
    assert 3 < seen[-1]["length"] < 5 and seen[-1]["length"] == seen[-1]["return"]
    assert seen[-1]["steps"] == seen[-1]["total_steps"] == 640


@pytest.mark.parametrize("algorithm", ["ppo", "sac", "td3"])
def test_actions_that_are_numbers(algorithm, tmp_path):
    envs = gymnasium.make_vec("Pendulum-v1", num_envs=2, vectorization_mode="sync")
    settings = {} if algorithm == "ppo" else {"learning_starts": 100}
    policy = train(envs, algorithm, total_steps=600, hidden=[16], activation="relu", **settings)
    one, _ = policy.predict(np.zeros(3, "float32"))
    assert one.shape == (1,) and one.dtype == np.float32
    many, state = policy.predict(np.random.default_rng(0).normal(size=(50, 3)) * 100)
    assert many.shape == (50, 1) and state is None
    assert (np.abs(many) <= 2).all()


def test_saved_policies_act_the_same(tmp_path):
    envs = gymnasium.make_vec("CartPole-v1", num_envs=4)
    policy = train(envs, total_steps=2048, normalize_observations=10.0, out=tmp_path / "run")
    x = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
    policy.save(tmp_path / "policy.safetensors")
    actions, _ = policy.predict(x)
    assert actions.shape == (100,) and actions.dtype == np.int64 and set(actions) <= {0, 1}
    for path in ["policy.safetensors", "run"]:
        loaded = Policy.load(tmp_path / path)
        np.testing.assert_array_equal(loaded.predict(x)[0], actions)
        assert loaded.mean_return is None and "ppo" in repr(loaded)
    policy.export_onnx(tmp_path / "policy.onnx")
    logits = polygrad.Model.load(tmp_path / "policy.onnx").run(x)["logits"]
    np.testing.assert_array_equal(logits.argmax(1), actions)


def test_predictions_by_chance():
    policy = train(gymnasium.make_vec("CartPole-v1", num_envs=4), total_steps=512)
    x = np.zeros(4, "float32")
    assert {int(policy.predict(x, deterministic=False)[0]) for _ in range(100)} == {0, 1}
    assert len({int(policy.predict(x)[0]) for _ in range(10)}) == 1
    q = train(gymnasium.make_vec("CartPole-v1", num_envs=1), "dqn", total_steps=200, learning_starts=100)
    with pytest.raises(polygrad.Error, match="what they are worth"):
        q.predict(x, deterministic=False)


def test_spaces_begin_where_they_begin():
    policy = train(counting(AutoresetMode.SAME_STEP), total_steps=64, num_steps=8)
    action, _ = policy.predict(np.zeros(1))
    assert action.shape == () and Counting.action_space.contains(action[()])


def test_the_same_seed_gives_the_same_policy():
    def policy(seed):
        return train(gymnasium.make_vec("CartPole-v1", num_envs=4), total_steps=2048, seed=seed)

    x = np.random.default_rng(0).normal(size=(1, 4)).astype("float32")
    first, again, other = (policy(seed) for seed in (1, 1, 2))
    assert first.mean_return == again.mean_return != other.mean_return
    np.testing.assert_array_equal(first.predict(x)[0], again.predict(x)[0])


def test_policies_are_used_like_those_of_stable_baselines3():
    policy = train(counting(AutoresetMode.SAME_STEP), total_steps=64, num_steps=8)
    actions, state = policy.predict(np.zeros((2, 1)), state=None, episode_start=np.ones(2, bool), deterministic=True)
    np.testing.assert_array_equal(policy.predict(np.zeros((2, 1)), state, np.zeros(2, bool), True)[0], actions)
    with pytest.raises(ValueError, match="a state was given, and the policy has no memory"):
        policy.predict(np.zeros(1), state=(np.zeros(2),))


def test_policies_take_tables_of_integers():
    pandas = pytest.importorskip("pandas")
    policy = train(counting(AutoresetMode.SAME_STEP), total_steps=64, num_steps=8)
    frame = pandas.DataFrame({"x": [0, 1]}, dtype="int16")
    np.testing.assert_array_equal(policy.predict(frame)[0], policy.predict(frame.to_numpy("float64"))[0])


def test_policies_are_copied_and_pickled():
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2)
    policy = train(envs, total_steps=2048, normalize_observations=10.0)
    x = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
    for other in [copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]:
        np.testing.assert_array_equal(other.predict(x)[0], policy.predict(x)[0])
        assert other.mean_return == policy.mean_return and repr(other) == repr(policy)


def test_settings_may_be_numbers_of_numpy():
    envs = counting(AutoresetMode.SAME_STEP)
    policy = train(envs, total_steps=np.int64(64), num_steps=np.int64(8), hidden=[np.int32(4)])
    assert "31 parameters" in repr(policy)


class Given(gymnasium.vector.VectorEnv):
    """Two environments whose steps return what they are told to."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space = gymnasium.spaces.Box(-1, 1, (3,))

    def __init__(self, action_space=gymnasium.spaces.Discrete(2), num_envs=2, **given):
        self.single_action_space, self.num_envs, self.given, self.actions = action_space, num_envs, given, []

    def reset(self, *, seed=None, options=None):
        return self.given.get("reset", (np.zeros((2, 3)), {}))

    def step(self, actions):
        self.actions.append(actions)
        usual = (np.zeros((2, 3)), np.ones(2), np.zeros(2, bool), np.zeros(2, bool), {})
        return self.given.get("step", usual)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_environments_may_keep_their_actions(algorithm):
    envs = Given()
    settings = {"ppo": {"num_steps": 32}, "dqn": {"learning_starts": 32}}[algorithm]
    train(envs, algorithm, total_steps=64, **settings)
    assert {tuple(actions) for actions in envs.actions} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert all(actions.dtype == np.int64 and actions.flags.writeable for actions in envs.actions)


def test_numbers_are_rounded_for_integers():
    envs = Given(gymnasium.spaces.Box(0, 3, (2,), np.int32))
    train(envs, total_steps=512, num_steps=256, update_epochs=1)
    counts = np.bincount(np.concatenate(envs.actions).ravel(), minlength=4)
    # A normal distribution around 0: between 0.5 and 1.5 are 24 %, between 1 and 2 14 %.
    assert envs.actions[0].dtype == np.int32 and 0.2 < counts[1] / counts.sum() < 0.28


@pytest.mark.parametrize("dtype", ["float64", "float16", ">f4", "int8", "uint16", "object"])
def test_observations_may_have_any_dtype(dtype):
    seen = (np.eye(2, 3).astype(dtype), np.ones(2), [False, False], np.zeros((2, 1), "uint8"), {})
    seen_in_order = (np.asfortranarray(np.eye(2, 3)), np.ones(2, "float32"), np.zeros(2, bool), np.zeros(2, bool), {})
    first, second = (train(Given(step=step), total_steps=64, num_steps=8) for step in (seen, seen_in_order))
    x = np.random.default_rng(0).normal(size=(100, 3))
    np.testing.assert_array_equal(first.predict(x)[0], second.predict(x)[0])


class Failing(Counting):
    def step(self, action):
        if self.steps == 2:
            raise LookupError("the tower fell")
        return super().step(action)


def test_exceptions_arrive_as_they_are():
    with pytest.raises(LookupError, match="the tower fell"):
        train(SyncVectorEnv([lambda: Failing(5)]), total_steps=1000)

    def callback(known):
        raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback"):
        train(counting(AutoresetMode.SAME_STEP), total_steps=1000, callback=callback)


def test_a_callback_stops_training():
    seen = []
    envs = counting(AutoresetMode.SAME_STEP)
    train(envs, total_steps=1000, num_steps=8, callback=lambda known: seen.append(known["steps"]) or len(seen) < 3)
    assert seen == [16, 32, 48]


def test_a_run_goes_on(tmp_path):
    settings = dict(total_steps=2048, out=tmp_path / "run", num_steps=64)
    seen = []

    def envs():
        return gymnasium.make_vec("CartPole-v1", num_envs=4)

    train(envs(), callback=lambda known: seen.append(known["steps"]) or len(seen) < 3, **settings)
    assert seen[-1] == 768
    with pytest.raises(polygrad.Error, match="holds a run already"):
        train(envs(), **settings)
    train(envs(), resume=True, callback=lambda known: seen.append(known["steps"]) and None, **settings)
    assert seen[3:] == list(range(1024, 2049, 256))


def test_ctrl_c_leaves_a_checkpoint(tmp_path):
    code = textwrap.dedent(f"""
        import gymnasium, polygrad, signal
        # Where the tests run in the background it is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        envs = gymnasium.make_vec("CartPole-v1", num_envs=4)
        try:
            polygrad.rl.train(envs, total_steps=10**9, out={str(tmp_path / "run")!r},
                              callback=lambda known: print(known["steps"], flush=True))
        except KeyboardInterrupt as stopped:
            print("stopped:", stopped)
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "stopped: training was stopped, with a checkpoint in" in text and process.returncode == 0
    assert Policy.load(tmp_path / "run").predict(np.zeros(4, "float32"))[0] in (0, 1)


def test_ctrl_c_is_pythons_own_afterwards():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    train(counting(AutoresetMode.SAME_STEP), total_steps=64, num_steps=8)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


class NotFinite(Counting):
    def step(self, action):
        return (np.full(1, np.nan), *super().step(action)[1:])


def step(seen, rewards=np.ones(2), ended=np.zeros(2, bool), infos={}):
    return Given(step=(seen, rewards, ended, np.zeros(2, bool), infos))


def images(shape):
    envs = Given()
    envs.single_observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    return envs


def last(row):
    finals = np.array([row, None], object)
    return step(np.zeros((2, 3)), ended=np.array([True, False]), infos={"final_obs": finals})


def test_what_cannot_be_trained_is_told(tmp_path):
    envs = counting(AutoresetMode.SAME_STEP)
    for make, settings, error, text in [
        (lambda: gymnasium.make("CartPole-v1"), {}, TypeError, "no vector environment.*make_vec"),
        (lambda: envs, {"algorithm": "a2c"}, ValueError, "no algorithm.*ppo, dqn, sac, td3"),
        (lambda: envs, {"gama": 0.9}, ValueError, "unknown field `gama`, expected one of.*`gamma`"),
        (lambda: envs, {"gamma": 2}, ValueError, "gamma is not from 0 to 1"),
        (lambda: envs, {"activation": "step"}, ValueError, "unknown variant `step`.*`tanh`"),
        (lambda: envs, {"algorithm": "sac"}, ValueError, "numbers within bounds"),
        (lambda: envs, {"resume": True}, ValueError, "give the folder"),
        (lambda: envs, {"out": tmp_path, "resume": True}, polygrad.Error, "run"),
        (lambda: gymnasium.make_vec("Blackjack-v1", num_envs=2), {}, TypeError, "is a Tuple"),
        (lambda: envs, {"v_trace": {"rho_bar": 1, "c_bar": 1}}, ValueError, "v_trace is a setting that was removed"),
        (lambda: SyncVectorEnv([lambda: NotFinite(5)]), {}, ValueError, "environment 0 gave observation NaN"),
        (lambda: Given(step=(*[np.zeros(2)] * 3, {})), {}, TypeError, "`step` .* tuple of length 4"),
        (lambda: envs, {"seed": -1}, ValueError, "the setting seed of ppo is wrong: .*`-1`, expected u64"),
        (lambda: envs, {"total_steps": 1.5}, ValueError, "the setting total_steps of ppo is wrong"),
        (lambda: envs, {"gamma": float("nan")}, ValueError, "the setting gamma is wrong: a finite number"),
        (lambda: envs, {"learning_rate": np.array([1, 2, 3])}, ValueError, "learning_rate of ppo is wrong: a number, or"),
        (lambda: Given(num_envs=0), {}, ValueError, "num_envs is 0"),
        (lambda: images((84, 84, 3)), {}, ValueError, r"whose channels are last; put them first, \[3, 84, 84\]"),
        (lambda: images((7, 7, 3)), {}, ValueError, "too small for convolutions; .*FlattenObservation"),
        (lambda: step(np.ma.masked_array(np.zeros((2, 3)), True)), {}, ValueError, "has a mask"),
        (lambda: counting(AutoresetMode.NEXT_STEP), {"algorithm": "pqn"}, ValueError, "SAME_STEP"),
        (lambda: Given(step=None), {}, TypeError, "`step` .* a NoneType, and"),
        (lambda: Given(reset=np.zeros((2, 3))), {}, TypeError, "`reset` .* a ndarray of length 2"),
        (lambda: step(np.zeros((3, 2))), {}, ValueError, r"the observations of step .* \[3, 2\], and \[2, 3\] is"),
        (lambda: step(np.zeros((2, 3)), np.ones(3)), {}, ValueError, r"the rewards of step .* \[3\], and \[2\] is"),
        (lambda: last(np.full(3, np.nan)), {}, ValueError, "environment 0 gave last observation NaN, at 0"),
        (lambda: last(np.zeros(4)), {}, ValueError, r'infos\["final_obs"\] .* \[4\], and \[3\] is'),
        (lambda: Given(gymnasium.spaces.MultiBinary((2, 2))), {}, TypeError, r"MultiBinary of shape \(2, 2\)"),
    ]:
        with pytest.raises(error, match=text):
            train(make(), **{"total_steps": 1000, **settings})
    with pytest.raises(ValueError, match=r"shape \[3\], and \[1\] or \[n, …\]"):
        train(envs, total_steps=64, num_steps=8).predict(np.zeros(3))
    with pytest.raises(polygrad.Error, match="no policy of polygrad.rl|not"):
        (tmp_path / "other.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        Policy.load(tmp_path / "other.safetensors")
