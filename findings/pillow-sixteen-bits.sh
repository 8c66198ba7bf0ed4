#!/usr/bin/env bash
# Pillow: a picture of 16 bits becomes white if it is converted to 8, as most loaders of data sets do.
#
# Guess, written down first: convert("L") and convert("RGB") of a gray picture with 16 bits scale it to 8, as other
# decoders do: 65535 becomes 255, and 32768 becomes 128. So X-ray and depth pictures look as before.
#
# Seen on 2026-11-30 with pillow 13.0.0 and opencv-python-headless 5.0.0.93 (CPU, Python 3.11): everything above 255
# becomes 255, which are all but 0.4 % of the levels. OpenCV, asked for 8 bits of the same PNG file, scales. Neither
# warns. A data set's loader that ends in convert("RGB") gives white pictures with black specks, and trains.
# A colour picture of 16 bits is scaled by Pillow itself, when it is opened.
#
# Source: https://pillow.readthedocs.io/en/stable/handbook/concepts.html#modes ("I;16", "limited support"); the page on
# Image.convert does not say what happens to it.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install pillow==13.0.0 opencv-python-headless==5.0.0.93 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W error - <<'PY'
import cv2
import numpy as np
import PIL
from PIL import Image

levels = np.array([[0, 200, 256, 1000, 32768, 65535]], np.uint16)
assert cv2.imwrite("gray.png", levels) and cv2.imwrite("colour.png", np.repeat(levels[..., None], 3, 2))
picture = Image.open("gray.png")
gray, rgb = np.asarray(picture.convert("L")), np.asarray(picture.convert("RGB"))
by_opencv, colour = cv2.imread("gray.png", cv2.IMREAD_GRAYSCALE), np.asarray(Image.open("colour.png").convert("RGB"))
print(PIL.__version__, picture.mode, "levels", levels, "as L", gray, "a colour picture's", colour[..., 0])
print("OpenCV", cv2.__version__, by_opencv)
assert gray.tolist() == [[0, 200, 255, 255, 255, 255]] and rgb[..., 0].tolist() == gray.tolist()
scaled = levels / 257
assert abs(by_opencv - scaled).max() <= 1 and abs(colour[..., 0] - scaled).max() <= 1
PY
