"""Policies that learn in Gymnasium's vector environments: these run in Python, everything else in Rust."""

from __future__ import annotations

from ._data import plain
from ._interrupt import Interruptible
from ._polygrad import Policy
from ._polygrad import train as _train

# Importing `typing` would take as long as everything else; type checkers know this name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from typing import Any

__all__ = ["Policy", "train"]


def train(
    envs: Any,
    algorithm: str = "ppo",
    *,
    total_steps: int | None = None,
    seed: int = 0,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    callback: Callable[[dict[str, float]], bool | None] | None = None,
    hidden: Sequence[int] | None = None,
    activation: str | None = None,
    **settings: Any,
) -> Policy:
    """Trains a policy in vector environments, such as those of ``gymnasium.make_vec``, and returns it.

    Args:
        envs: A ``gymnasium.vector.VectorEnv``, of any autoreset mode (for ``pqn`` not ``NEXT_STEP``, the default), with
            an action space ``Discrete``, ``Box``, ``MultiDiscrete`` or ``MultiBinary``, and observations that are
            vectors, or images of channels, height and width. It is not closed.
        algorithm: ``"ppo"``, ``"dqn"``, ``"pqn"``, ``"sac"`` or ``"td3"``; ``dqn`` and ``pqn`` are for ``Discrete``
            actions, the last two for ``Box``.
        total_steps: Steps of all environments together. Default: CleanRL's, 500,000 or 1,000,000.
        seed: Seed of all randomness. The same seed gives the same training, if the environments are deterministic.
        out: A folder for the policy, a checkpoint and curves, which must not hold a run yet. Default: nothing is written.
        resume: Continue from the checkpoint in ``out``, with the same settings. The environments begin new episodes.
        callback: Called after each iteration with ``steps``, ``total_steps``, ``seconds``, ``loss``, and the
            measurements of the algorithm, such as ``return``, the mean of the last 100 episodes. Returning ``False``
            stops the training as if it had reached its end.
        hidden: Features of each hidden layer. Default: CleanRL's, such as ``[64, 64]`` for PPO.
        activation: After each layer, such as ``"tanh"`` or ``"relu"``.
        settings: Settings of the algorithm, such as ``gamma=0.98``, with the names of ``polygrad train --set``. For a
            number that may change, ``[1e-3, 0]`` goes from the first to the second. Default: CleanRL's.

    Raises:
        polygrad.Error: If a setting does not exist, a folder cannot be written, or numbers are not finite.
        KeyboardInterrupt: After Ctrl-C, once the running iteration is over and, with ``out``, a checkpoint is written. A
            second Ctrl-C ends at once.
        Exception: Exceptions of the environments or the callback, unchanged.
    """
    import json
    import os

    if resume and out is None:
        raise ValueError("resume=True goes on from the checkpoint in out: give the folder")
    network = {"hidden": None if hidden is None else list(hidden), "activation": activation}
    settings["seed"] = seed
    if total_steps is not None:
        settings["total_steps"] = total_steps
    order = {
        "algorithm": str(algorithm),
        "out": None if out is None else os.fspath(out),
        "resume": bool(resume),
        "network": json.dumps(network, default=plain),
        "settings": json.dumps(settings, default=plain),
    }
    with Interruptible() as interrupt:

        def told(known: dict[str, float]) -> bool:
            return interrupt.asked or (callback is not None and callback(known) is False)

        policy, _ = _train(envs, order, told)
        interrupt.stopped(out)
    return policy
