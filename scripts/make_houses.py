"""Writes data/houses/houses.csv: synthetic sales of houses, for examples/tabular.rs."""

import csv
import math
import pathlib
import random

DISTRICTS = {"harbour": 1.35, "old town": 1.25, "hill": 1.1, "station": 0.9, "meadows": 0.8}
path = pathlib.Path(__file__).parent.parent / "data/houses/houses.csv"
rng = random.Random(7)

with path.open("w", newline="") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["area", "rooms", "age", "distance_km", "garden", "district", "price"])
    for _ in range(1200):
        district = rng.choice(list(DISTRICTS))
        area = round(min(max(rng.lognormvariate(4.6, 0.35), 35), 320))
        rooms = max(1, round(area / 28 + rng.gauss(0, 0.8)))
        age = rng.randrange(0, 120)
        distance = round(rng.uniform(0.3, 18), 1)
        garden = int(rng.random() < min(0.9, 0.15 + distance / 15))
        # Large, central houses gain most; houses lose value until they are old enough to be charming.
        price = 2600 * area ** 0.95 * DISTRICTS[district] * (0.7 + 0.7 * math.exp(-distance / 5))
        price *= 1 - 0.35 * math.sin(math.pi * age / 120) + 0.06 * garden * (distance > 5) + 0.02 * min(rooms, 6)
        price *= rng.lognormvariate(0, 0.06)
        table.writerow([area, rooms, age, distance, garden, district, int(round(price, -2))])
