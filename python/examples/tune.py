"""Optuna looks for settings of a network: `pip install optuna`, then `python tune.py [TRIALS]`.

Trials that fall behind are stopped after an epoch by Optuna's exception, which passes through the training as it is.
"""

import sys

import numpy as np
import optuna

import polygrad

rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, size=(1500, 3)).astype("float32")
y = np.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2] ** 2
train, test = (x[:1000], y[:1000]), (x[1000:], y[1000:])


def objective(trial):
    hidden = [trial.suggest_int("width", 8, 128, log=True)] * trial.suggest_int("layers", 1, 3)
    activation = trial.suggest_categorical("activation", ["relu", "silu", "tanh"])
    model = polygrad.Model.mlp(3, 1, hidden=hidden, activation=activation)

    def report(known):
        trial.report(known["validation_loss"], known["epoch"])
        if trial.should_prune():
            raise optuna.TrialPruned

    learning_rate = trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)
    history = model.fit(
        *train,
        epochs=20,
        loss="mse",
        learning_rate=learning_rate,
        schedule="cosine",
        validation=test,
        callbacks=[report],
    )
    return history.best


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0), pruner=optuna.pruners.MedianPruner())
study.optimize(objective, n_trials=int(sys.argv[1]) if len(sys.argv) > 1 else 30)
pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
print(f"{len(study.trials)} trials, {pruned} of them stopped early")
print(f"loss {study.best_value:.4f} of a variance of {y.var():.2f}, with {study.best_params}")
