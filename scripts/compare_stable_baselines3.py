"""How fast PPO learns in Gymnasium's CartPole from Python: this package beside Stable-Baselines3 and CleanRL's ppo.py.

    cargo xtask wheel && cargo xtask setup pytorch
    python3 scripts/compare_stable_baselines3.py [--wheel target/wheels/polygrad-….whl] [--steps 200000] [--runs 2]

Creates a virtual environment in a temporary folder with the packages below in fixed versions, and PyTorch from the
cache folder of `setup pytorch` (or --torch FOLDER), and removes it at the end. Prints, as a table of Markdown, the CPU
time of the process for 1000 steps of all environments together, and the environments' share of it, measured as the same
number of steps with random actions. All learn by PPO with CleanRL's settings, rollouts of 128 steps, 4 epochs of 4
minibatches, networks of 64 and 64, and PyTorch has one thread. CleanRL's is the one of compare_ppo.py.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

PACKAGES = ["gymnasium==1.4.0", "numpy==2.4.6", "cloudpickle==3.1.3", "pandas==3.1.1", "matplotlib==3.11.2"]
# Without its dependencies, since these include a PyTorch with CUDA.
STABLE_BASELINES3 = "stable-baselines3==2.9.2"
ROOT = pathlib.Path(__file__).resolve().parent.parent
NUM_STEPS, EPOCHS, MINIBATCHES = 128, 4, 4


def environments(kind, count):
    import gymnasium

    if kind == "one array":
        return gymnasium.make_vec("CartPole-v1", num_envs=count)
    if kind == "in Rust":
        import polygrad.envs  # noqa: F401: it registers them

        return gymnasium.make_vec("polygrad/CartPole-v0", num_envs=count)
    return gymnasium.make_vec("CartPole-v1", num_envs=count, vectorization_mode="sync")


def polygrad_ppo(kind, count, steps):
    import polygrad

    envs = environments(kind, count)
    settings = dict(num_steps=NUM_STEPS, update_epochs=EPOCHS, num_minibatches=MINIBATCHES, hidden=[64, 64])
    begun = time.process_time()
    polygrad.rl.train(envs, total_steps=steps, seed=1, **settings)
    return time.process_time() - begun


def environments_alone(kind, count, steps):
    envs = environments(kind, count)
    envs.reset(seed=1)
    actions = [envs.action_space.sample() for _ in range(64)]
    begun = time.process_time()
    for step in range(steps // count):
        envs.step(actions[step % 64])
    return time.process_time() - begun


def stable_baselines3_ppo(kind, count, steps):
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    envs = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * count)
    batch = count * NUM_STEPS // MINIBATCHES
    settings = dict(n_steps=NUM_STEPS, n_epochs=EPOCHS, batch_size=batch, learning_rate=2.5e-4)
    model = PPO("MlpPolicy", envs, seed=1, device="cpu", **settings)
    begun = time.process_time()
    model.learn(steps)
    return time.process_time() - begun


def cleanrl_ppo(kind, count, steps):
    import compare_ppo

    args = compare_ppo.arguments(["--envs", str(count), "--steps", str(NUM_STEPS), "--total", str(steps)])
    trainer, iterations = compare_ppo.Trainer(args), steps // (count * NUM_STEPS)
    begun = time.process_time()
    for i in range(iterations):
        trainer.iteration(i, iterations)
    return time.process_time() - begun


def prepared(folder, wheel, torch):
    python = folder / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *PACKAGES, wheel], check=True)
    subprocess.run([*install, "--no-deps", STABLE_BASELINES3], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # After the packages of the environment.
    (site / "torch.pth").write_text(f"{torch}\n")
    return python


def measured(python, what, kind, count, options):
    """CPU milliseconds for 1000 steps, the mean of several runs in separate processes."""
    order = json.dumps([what, kind, count, options.steps])
    command = [python, __file__, "--measure", order]
    run = lambda: subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd="/")
    found = [float(run().stdout.split()[-1]) for _ in range(options.runs)]
    return sum(found) / len(found) / options.steps * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "polygrad"
    parser.add_argument("--wheel", type=pathlib.Path, default=next(target.glob("wheels/polygrad-*.whl"), None))
    parser.add_argument("--torch", type=pathlib.Path, default=cache / "pytorch-1")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--measure")
    options = parser.parse_args()
    if options.measure:
        what, *order = json.loads(options.measure)
        print(globals()[what](*order))
        return
    if options.wheel is None or not (options.torch / "torch").is_dir():
        sys.exit("there is no wheel or no PyTorch: run `cargo xtask wheel` and `cargo xtask setup pytorch`")
    with tempfile.TemporaryDirectory() as folder:
        python = prepared(pathlib.Path(folder), options.wheel, options.torch)
        print("| environments | Polygrad, CPU ms for 1000 steps | of that the environments | Stable-Baselines3 | CleanRL |")
        print("|---|---|---|---|---|")
        for kind in ["one array", "one by one", "in Rust"]:
            for count in [8, 64]:
                whole = measured(python, "polygrad_ppo", kind, count, options)
                share = measured(python, "environments_alone", kind, count, options) / whole
                others = ["", ""]
                if kind == "one by one":
                    peers = ["stable_baselines3_ppo", "cleanrl_ppo"]
                    others = [f"{measured(python, peer, kind, count, options):.0f}" for peer in peers]
                print(f"| {count}, {kind} | {whole:.1f} | {share:.0%} | {' | '.join(others)} |", flush=True)


if __name__ == "__main__":
    main()
