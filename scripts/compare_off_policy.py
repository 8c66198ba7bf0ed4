"""How fast DQN and SAC learn: `polygrad train` beside ModuRL and CleanRL's dqn.py, each in a process of its own.

    cargo build --release --features rl -p polygrad-cli
    (cd benches/peers/modurl && cargo build --release)
    python3 scripts/compare_off_policy.py target/release/polygrad \\
        benches/peers/modurl/target/release/polygrad-peer-modurl

CleanRL's needs a Python with gymnasium 1.4.0 and PyTorch (--python, or this one). Prints, as a table of Markdown, the
user time of a step: the difference of a long and a short training, each the least of several runs in turns. ModuRL's
settings are those of benches/peers/modurl, CleanRL's those of its dqn.py. One thread each.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

MODURL = ["--set", "batch_size=64", "--set", "learning_starts=1000", "--set", "policy.encoder.mlp.hidden=[64,64]"]
DQN = ["cartpole", "--algorithm", "dqn", "--preset", "cleanrl"]
SAC = ["pendulum", "--algorithm", "sac", "--preset", "cleanrl"]
DQN_AS_MODURL = [*DQN, *MODURL, "--set", "train_frequency=4", "--set", "target_frequency=500"]
SAC_AS_MODURL = [*SAC, *MODURL, "--set", "policy_frequency=1"]


def cleanrl_dqn(steps):
    """CleanRL's dqn.py without its logs: 120 and 84 features, a batch of 128 from 10,000 transitions every 10 steps."""
    import gymnasium
    import numpy
    import torch
    from gymnasium.vector import AutoresetMode, SyncVectorEnv
    from torch import nn

    torch.set_num_threads(1)
    make = lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    envs = SyncVectorEnv([make], autoreset_mode=AutoresetMode.SAME_STEP)
    network = lambda: nn.Sequential(nn.Linear(4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2))
    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=2.5e-4)
    size, random = 10_000, numpy.random.default_rng(1)
    before, after = numpy.zeros((2, size, 4), numpy.float32)
    actions, (rewards, ends) = numpy.zeros((size, 1), numpy.int64), numpy.zeros((2, size), numpy.float32)
    observation, _ = envs.reset(seed=1)
    for step in range(steps):
        epsilon = max(1 - 0.95 * step / 250_000, 0.05)
        if random.random() < epsilon:
            action = envs.action_space.sample()
        else:
            action = online(torch.tensor(observation)).argmax(1).numpy()
        following, reward, terminated, truncated, infos = envs.step(action)
        place = step % size
        before[place], actions[place], rewards[place], ends[place] = observation[0], action, reward[0], terminated[0]
        ended = terminated[0] or truncated[0]
        after[place] = infos["final_obs"][0] if ended else following[0]
        observation = following
        if step <= size:
            continue
        if step % 10 == 0:
            drawn = random.integers(0, size, 128)
            batch = [torch.tensor(part[drawn]) for part in (before, actions, rewards, ends, after)]
            with torch.no_grad():
                best = target(batch[4]).max(1).values
                wanted = batch[2] + 0.99 * best * (1 - batch[3])
            found = online(batch[0]).gather(1, batch[1]).squeeze()
            loss = nn.functional.mse_loss(wanted, found)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 500 == 0:
            for kept, learnt in zip(target.parameters(), online.parameters()):
                kept.data.copy_(learnt.data)


def user_seconds(command):
    environment = dict(os.environ, RAYON_NUM_THREADS="1")
    with tempfile.TemporaryFile("w+", errors="replace") as told:
        program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=told, env=environment)
        _, status, usage = os.wait4(program.pid, 0)
        if status:
            told.seek(0)
            sys.exit(f"failed: {' '.join(map(str, command))}\n{told.read()}")
    return usage.ru_utime


def measured(rows, runs):
    """Microseconds of user time for a step of each row, all rows in turns."""
    least = {}
    for _ in range(runs):
        for name, (command, short, long) in rows.items():
            for steps in (short, long):
                key = name, steps
                least[key] = min(least.get(key, float("inf")), user_seconds(command(steps)))
    step = lambda name, short, long: (least[name, long] - least[name, short]) / (long - short) * 1e6
    return {name: step(name, short, long) for name, (_, short, long) in rows.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("polygrad")
    parser.add_argument("modurl")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(options, pathlib.Path(folder))


def compare(options, folder):
    def ours(settings):
        command = [options.polygrad, "train", *settings, "--threads", "1"]
        out = lambda: str(folder / os.urandom(8).hex())
        return lambda steps: [*command, "--total-steps", str(steps), "--out", out()]

    peer = lambda algorithm: lambda steps: [options.modurl, algorithm, str(steps)]
    cleanrl = lambda steps: [options.python, __file__, "--cleanrl", str(steps)]
    pairs = {
        "DQN, CartPole, ModuRL": (ours(DQN_AS_MODURL), 20_000, 120_000, peer("dqn"), 5_000, 25_000),
        "SAC, Pendulum, ModuRL": (ours(SAC_AS_MODURL), 2_000, 8_000, peer("sac"), 500, 2_500),
        "DQN, CartPole, CleanRL": (ours(DQN), 20_000, 120_000, cleanrl, 12_000, 32_000),
    }
    print("| beside | ours, µs a step | the other, µs | times |\n|---|---|---|---|")
    for name, (own, short, long, other, other_short, other_long) in pairs.items():
        found = measured({"own": (own, short, long), "other": (other, other_short, other_long)}, options.runs)
        ratio = found["other"] / found["own"]
        print(f"| {name} | {found['own']:.1f} | {found['other']:.1f} | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cleanrl"]:
        cleanrl_dqn(int(sys.argv[2]))
    else:
        main()
