"""Prints scikit-learn's metrics of the predictions in crates/train/tests/metrics.rs.

    pip install scikit-learn==1.*
    python3 scripts/make_metric_values.py
"""

import numpy as np
from sklearn import metrics

# The same numbers as in the test: a linear congruential generator's.
state = 1


def draw():
    global state
    state = (state * 1103515245 + 12345) % 2**31
    return state / 2**31


classes, count = 4, 60
logits = np.array([[draw() for _ in range(classes)] for _ in range(count)])
targets = np.array([int(draw() * 3) for _ in range(count)])  # class 3 is never right
answers = logits.argmax(1)
print("accuracy", metrics.accuracy_score(targets, answers))
for average in ["macro", "weighted", "micro"]:
    for name in ["precision", "recall", "f1"]:
        score = getattr(metrics, f"{name}_score")
        print(name, average, score(targets, answers, average=average, zero_division=0))
for average in ["macro", "weighted", "micro", None]:
    print("iou", average, metrics.jaccard_score(targets, answers, average=average, zero_division=0))
print("iou without class 1", metrics.jaccard_score(targets[targets != 1], answers[targets != 1], average="macro"))
print("f1 of each class", metrics.f1_score(targets, answers, average=None, zero_division=0))
scores = np.round(np.array([draw() for _ in range(count)]) * 8) / 8 - 0.5
truth = np.array([int(draw() * 2) for _ in range(count)])
for name in ["precision", "recall", "f1"]:
    print(name, "binary", getattr(metrics, f"{name}_score")(truth, scores > 0))
print("iou binary", metrics.jaccard_score(truth, scores > 0))
print("auroc", metrics.roc_auc_score(truth, scores))
shifted = logits - logits.max(1, keepdims=True)
log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
print("perplexity", np.exp(-log_probabilities[np.arange(count), targets].mean()))
numbers, predicted = np.array([draw() * 10 for _ in range(count)]), np.array([draw() * 10 for _ in range(count)])
print("mae", metrics.mean_absolute_error(numbers, predicted))
print("mse", metrics.mean_squared_error(numbers, predicted))
print("rmse", metrics.mean_squared_error(numbers, predicted) ** 0.5)
print("r2", metrics.r2_score(numbers, predicted))
