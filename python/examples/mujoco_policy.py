"""A policy for MuJoCo: `pip install "gymnasium[mujoco]==1.4.0"`, then `python mujoco_policy.py [ENVIRONMENT] [STEPS]`.

PPO as CleanRL has it for continuous actions. Prints the mean return as it learns.
"""

import sys

import gymnasium

import polygrad

name = sys.argv[1] if len(sys.argv) > 1 else "InvertedPendulum-v5"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60_000


def told(known):
    if known["steps"] % 10_240 < 2048 and "return" in known:
        print(f"{known['steps']:>8} steps  {known['seconds']:6.1f} s  return {known['return']:.1f}", flush=True)


envs = gymnasium.make_vec(name, num_envs=1, vectorization_mode="sync")
policy = polygrad.rl.train(
    envs, total_steps=steps, seed=1, callback=told, num_steps=2048, num_minibatches=32, update_epochs=10,
    learning_rate=[3e-4, 0], entropy_coefficient=0, normalize_observations=10.0, normalize_rewards=10.0,
)  # fmt: skip
policy.save(f"{name}.safetensors")
print(f"the last 100 episodes: {policy.mean_return:.1f}")
