"""Policies that learn in Gymnasium's vector environments: the environments are Python's, all else is Rust."""

from __future__ import annotations

from ._interrupt import Interruptible
from ._polygrad import Policy
from ._polygrad import train as _train

# `typing` takes as long to import as all else, and type checkers know the name.
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
    """Trains a policy in vector environments, as of ``gymnasium.make_vec``, and gives it.

    Args:
        envs: A ``gymnasium.vector.VectorEnv``, of any autoreset mode, with actions of ``Discrete``, ``Box``,
            ``MultiDiscrete`` or ``MultiBinary``, and observations that are vectors, or images of channels, height and
            width. It is left open.
        algorithm: ``"ppo"``, ``"dqn"``, ``"sac"`` or ``"td3"``; ``dqn`` is for ``Discrete`` actions, the last two for
            ``Box``.
        total_steps: Steps of all environments together. Default: CleanRL's, 500,000 or 1,000,000.
        seed: Where all chance begins. The same seed gives the same training, if the environments keep to it.
        out: A folder for the policy, a checkpoint and curves, which must not hold a run yet. Default: nothing is written.
        resume: Go on from the checkpoint in ``out``, with the same settings. The environments begin new episodes.
        callback: Is called after each iteration with what is known: ``steps``, ``total_steps``, ``seconds``, ``loss``,
            and what the algorithm measures, such as ``return``, the mean of the last 100 episodes. ``False`` stops the
            training, as if it had come to its end.
        hidden: Features of each hidden layer. Default: CleanRL's, such as ``[64, 64]`` of PPO.
        activation: Behind each layer, such as ``"tanh"`` or ``"relu"``.
        settings: Those of the algorithm, such as ``gamma=0.98``, with the names of ``polygrad train --set``. Where a
            number may change, ``[1e-3, 0]`` goes from the first to the second. Default: CleanRL's.

    Raises:
        polygrad.Error: A setting that there is not, a folder that cannot be written, numbers that are not finite.
        KeyboardInterrupt: After Ctrl-C, once the running iteration is over and, with ``out``, a checkpoint is written. A
            second Ctrl-C ends at once.
        Exception: Whatever the environments or the callback raise, as it is.
    """
    import json

    if resume and out is None:
        raise ValueError("resume=True goes on from the checkpoint in out: give the folder")
    order = {
        "algorithm": algorithm,
        "total_steps": total_steps,
        "seed": seed,
        "out": out,
        "resume": resume,
        "network": json.dumps({"hidden": None if hidden is None else list(hidden), "activation": activation}),
        "settings": json.dumps(settings, default=float),
    }
    with Interruptible() as interrupt:

        def told(known: dict[str, float]) -> bool:
            return interrupt.asked or (callback is not None and callback(known) is False)

        policy, _ = _train(envs, order, told)
        interrupt.stopped(out)
    return policy
