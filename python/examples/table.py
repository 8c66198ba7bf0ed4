"""Prices of houses out of a table, with pandas: `python table.py [houses.csv]`, of data/houses in the repository.

Prints the error of the network beside that of the mean price.
"""

import pathlib
import sys

import pandas as pd

import polygrad

default = pathlib.Path(__file__).parents[2] / "data/houses/houses.csv"
table = pd.get_dummies(pd.read_csv(sys.argv[1] if len(sys.argv) > 1 else default), dtype="float32").dropna()
train, test = table[: len(table) * 4 // 5], table[len(table) * 4 // 5 :]

# A network learns best from numbers around 0.
mean, std = train.mean(), train.std().replace(0, 1)
train, test = (train - mean) / std, (test - mean) / std

model = polygrad.Model.mlp(len(table.columns) - 1, 1, hidden=[64, 64])
history = model.fit(train, "price", epochs=60, learning_rate=3e-3, loss="mse", schedule="cosine", validation=test)
found = model.evaluate(test, "price", loss="mse", metrics=["rmse", "r2"])
print(f"{history.steps} steps in {history.seconds:.1f} s; R² {found['r2']:.3f}")
print(f"off by {found['rmse'] * std['price']:,.0f}, and the mean price by {test['price'].std() * std['price']:,.0f}")
