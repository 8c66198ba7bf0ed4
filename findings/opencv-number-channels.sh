#!/usr/bin/env bash
# OpenCV: a number acts on all channels in add, subtract, multiply and absdiff, and on the first in max, min and the
# bitwise operations.
#
# Guess, written down first: a number beside an image of three channels means the same in every element-wise function:
# all channels, as in NumPy, or the first, as a Scalar filled up with zeros.
#
# Seen on 2026-11-30 with opencv-python-headless 5.0.0.93 and numpy 2.4.6 (Python 3.11): of (10, 10, 10) and 5, add
# gives (15, 15, 15), and so do subtract, multiply and absdiff for all channels. max of it and 50 is (50, 10, 10):
# the other channels are compared with 0, as bitwise_and of 2 shows: (2, 0, 0). A tuple of one number, (5,), is the
# first channel in add, too, (15, 10, 10). So a floor by max and a mask by bitwise_and tint a picture.
# For one channel nothing of this shows.
#
# Source: https://docs.opencv.org/5.x/d2/de8/group__core__array.html (add and max both know an
# array and a scalar).
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install opencv-python-headless==5.0.0.93 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import cv2
import numpy as np

image = np.full((2, 2, 3), 10, np.uint8)
seen = {
    "add": (5, [15, 15, 15]),
    "subtract": (5, [5, 5, 5]),
    "absdiff": (5, [5, 5, 5]),
    "multiply": (2, [20, 20, 20]),
    "max": (50, [50, 10, 10]),
    "min": (5, [5, 0, 0]),
    "bitwise_and": (2, [2, 0, 0]),
    "bitwise_or": (1, [11, 10, 10]),
}
for name, (number, expected) in seen.items():
    y = getattr(cv2, name)(image, number)[0, 0].tolist()
    print(f"OpenCV {cv2.__version__}, {name} of (10, 10, 10) and {number}: {y}")
    assert y == expected, name
assert cv2.add(image, (5,))[0, 0].tolist() == [15, 10, 10]
assert (cv2.add(image[..., 0], 5) == 15).all() and (cv2.max(image[..., 0], 50) == 50).all()
PY
