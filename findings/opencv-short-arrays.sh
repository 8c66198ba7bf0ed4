#!/usr/bin/env bash
# OpenCV: the sum of two arrays of at most four bytes is four floats, not saturated; of five bytes, five saturated
# bytes.
#
# Guess, written down first: cv2.add of two NumPy arrays of uint8 and the same shape saturates at 255, element by
# element, and keeps shape and dtype, however many elements there are.
#
# Seen on 2026-11-30 with opencv-python-headless 5.0.0.93 and numpy 2.4.6 (Python 3.11): for 5 and 6 elements the guess
# is right. One to four elements in one axis are taken for a scalar of four channels: add, subtract, multiply and
# absdiff give a float64 array of 4 × 1, filled up with zeros, with 400 for 200 + 200. max and min of the same arrays
# keep uint8 and the shape. A row of four added to an image of 2 × 4 adds its first element to every pixel.
# So the boxes (four numbers) or the keypoints (two or three) of one example behave unlike a batch of them.
#
# Source: https://docs.opencv.org/5.x/d2/de8/group__core__array.html (add, of two arrays or of an array and a scalar;
# how Python's arrays are told from scalars is not said).
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install opencv-python-headless==5.0.0.93 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import cv2
import numpy as np

seen = {"add": (400, 255), "subtract": (0, 0), "multiply": (40000, 255), "absdiff": (0, 0)}
for count in range(1, 7):
    x = np.full(count, 200, np.uint8)
    for name, (as_scalar, as_bytes) in seen.items():
        y = getattr(cv2, name)(x, x)
        print(f"{name} of {count} bytes of 200: {y.dtype} {y.shape} {y.ravel()}")
        if count <= 4:
            assert y.dtype == np.float64 and y.shape == (4, 1)
            assert y.ravel().tolist() == [as_scalar] * count + [0] * (4 - count)
        else:
            assert y.dtype == np.uint8 and y.ravel().tolist() == [as_bytes] * count
    y = cv2.max(x, x)
    assert y.dtype == np.uint8 and y.ravel().tolist() == [200] * count

image, row = np.full((2, 4), 10, np.uint8), np.array([1, 2, 3, 4], np.uint8)
y = cv2.add(image, row)
print("2 × 4 and a row of four:", y.tolist(), "- NumPy:", (image + row).tolist())
assert (y == 11).all() and (image + row)[0].tolist() == [11, 12, 13, 14]
PY
