#!/usr/bin/env bash
# Optuna: of the choices 1 and 1.0, or 0, False and None, a study remembers another one than the function was given.
#
# Guess, written down first: suggest_categorical takes None, bool, int, float and str as choices, and best_params has
# the choice with which the best value was found. Choices that Python takes for equal are told apart, or refused.
#
# Seen on 2026-11-30 with optuna 5.0.0 (Python 3.11): the function gets each of 1 and 1.0. The choice is then stored as
# the position of the first one that equals it, so trial.params and best_params only ever have 1; True and False become
# 1 and 0 in the same way, and -0.0 becomes 0.0. No error and no warning. For scikit-learn's max_features, 1 is one
# feature and 1.0 is all of them: a forest that is trained again with best_params is another one. Samplers learn from
# the wrong choice, too.
#
# Source: https://optuna.readthedocs.io/en/stable/reference/generated/optuna.trial.Trial.html (suggest_categorical);
# CategoricalDistribution.to_internal_repr in optuna/distributions.py.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install optuna==5.0.0
"$folder/venv/bin/python" -W error - <<'PY'
from collections import Counter

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)


def search(choices, best):
    given = Counter()

    def objective(trial):
        choice = trial.suggest_categorical("choice", choices)
        given[repr(choice)] += 1
        return 0.0 if repr(choice) == repr(best) else 1.0

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    study.optimize(objective, n_trials=60)
    assert study.best_value == 0.0 and set(given) == set(map(repr, choices))
    remembered = Counter(repr(trial.params["choice"]) for trial in study.trials)
    print(f"{choices}: given {dict(given)}, remembered {dict(remembered)}, best {study.best_params}")
    return repr(study.best_params["choice"])


assert search([1, 2], best=2) == "2"
assert search(["1", 1], best="1") == "'1'"
assert search([1, 1.0], best=1.0) == "1"
assert search([0, False, None], best=False) == "0"
assert search([1, True], best=True) == "1"
assert search([0.0, -0.0], best=-0.0) == "0.0"
PY
