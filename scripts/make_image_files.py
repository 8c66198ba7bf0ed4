"""Writes the small images of crates/data/tests/images: files of each format, Pillow's pixels for them, and the results
of its transforms.

    pip install pillow==12.*
    python3 scripts/make_image_files.py
"""

import math
from pathlib import Path
import random

import numpy as np
from PIL import Image, ImageEnhance

HERE = Path(__file__).resolve().parent.parent / "crates/data/tests/images"


def picture(width, height):
    """Waves, an edge, and some noise in red, green and blue."""
    chance = random.Random(0)
    pixels = []
    for y in range(height):
        for x in range(width):
            edge = 120 if x > 2 * y else 0
            pixels.append(tuple(min(255, (3 * x * (c + 1) + 2 * y) % 130 + edge + chance.randrange(6)) for c in range(3)))
    image = Image.new("RGB", (width, height))
    image.putdata(pixels)
    return image


def mask(width, height, bits):
    """Numbers below 2^bits, with a palette, like the masks of Pascal VOC."""
    most = 2**bits
    image = Image.new("P", (width, height))
    image.putdata([(x // 5 + 7 * (y // 4)) % most for y in range(height) for x in range(width)])
    image.putpalette([(37 * i + c * 80) % 256 for i in range(most) for c in range(3)])
    return image


def stacked(images):
    """The images stacked vertically."""
    rows = [np.array(image) for image in images]
    return Image.fromarray(np.concatenate(rows))


# The same as in crates/data/tests/images.rs.
DEGREES = [0, 12.5, 45, 90, 180, 270, 301]
FACTORS = [0.0, 0.35, 1.0, 1.8]
HUES = [-0.5, -0.21, 0.0, 0.1, 0.37]
BILINEAR, NEAREST = Image.Resampling.BILINEAR, Image.Resampling.NEAREST
AFFINE = [
    (0, (3, -2), 1.0, (0, 0)),
    (20, (0, 0), 0.8, (0, 0)),
    (-33, (2.5, 1), 1.4, (8, 0)),
    (110, (0, -4), 1.1, (-12, 20)),
    (0, (1, 1), 2.0, (0, 0)),
]


def inverse_affine(size, angle, translate, scale, shear):
    """torchvision.transforms.functional.affine's matrix, which inverts a rotation after two shears around the
    middle."""
    rot, sx, sy = (math.radians(x) for x in (angle, *shear))
    (cx, cy), (tx, ty) = (0.5 * size[0], 0.5 * size[1]), translate
    a = math.cos(rot - sy) / math.cos(sy)
    b = -math.cos(rot - sy) * math.tan(sx) / math.cos(sy) - math.sin(rot)
    c = math.sin(rot - sy) / math.cos(sy)
    d = -math.sin(rot - sy) * math.tan(sx) / math.cos(sy) + math.cos(rot)
    m = [x / scale for x in (d, -b, 0.0, -c, a, 0.0)]
    m[2] += m[0] * (-cx - tx) + m[1] * (-cy - ty) + cx
    m[5] += m[3] * (-cx - tx) + m[4] * (-cy - ty) + cy
    return m


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    colour = picture(37, 23)
    alpha = colour.convert("RGBA")
    alpha.putalpha(colour.convert("L"))
    kinds = {
        "colour.png": colour,
        "grey.png": colour.convert("L"),
        "alpha.png": alpha,
        "palette.png": colour.convert("P", palette=Image.Palette.ADAPTIVE),
        "bits.png": colour.convert("1"),
    }
    for name, image in kinds.items():
        image.save(HERE / name)
        image.convert("RGB").save(HERE / f"as-rgb-{name}")
    for name, quality, sampling in [("half", 90, "4:2:0"), ("full", 95, "4:4:4")]:
        colour.save(HERE / f"{name}.jpg", quality=quality, subsampling=sampling, progressive=name == "full")
        Image.open(HERE / f"{name}.jpg").save(HERE / f"as-rgb-{name}.png")
    colour.convert("L").save(HERE / "grey.jpg")
    Image.open(HERE / "grey.jpg").convert("RGB").save(HERE / "as-rgb-grey-jpg.png")
    colour.convert("L").save(HERE / "luma.png")
    for width, height in [(16, 16), (50, 40), (37, 9), (7, 23), (1, 1)]:
        colour.resize((width, height), Image.Resampling.BILINEAR).save(HERE / f"resized-{width}x{height}.png")
        colour.resize((width, height), Image.Resampling.NEAREST).save(HERE / f"nearest-{width}x{height}.png")
    for bits in [1, 2, 4, 8]:
        mask(37, 23, bits).save(HERE / f"mask-{bits}.png", bits=bits)
    numbers = Image.frombytes("L", (37, 23), mask(37, 23, 8).tobytes())
    numbers.save(HERE / "mask-numbers.png")
    square = colour.crop((5, 0, 28, 23))
    for name, image, filter_ in [("colour", colour, BILINEAR), ("numbers", numbers, NEAREST), ("square", square, BILINEAR)]:
        stacked(image.rotate(degrees, filter_) for degrees in DEGREES).save(HERE / f"rotated-{name}.png")
    for name, image, filter_ in [("colour", colour, BILINEAR), ("numbers", numbers, NEAREST)]:
        matrices = [inverse_affine(image.size, *options) for options in AFFINE]
        mapped = [image.transform(image.size, Image.Transform.AFFINE, matrix, filter_, fillcolor=0) for matrix in matrices]
        stacked(mapped).save(HERE / f"affine-{name}.png")
    enhancers = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]
    changed = [enhancer(colour).enhance(factor) for enhancer in enhancers for factor in FACTORS]
    for share in HUES:
        hue, saturation, value = colour.convert("HSV").split()
        hue = Image.fromarray(np.array(hue) + np.array(share * 255).astype(np.int32).astype(np.uint8))
        changed.append(Image.merge("HSV", (hue, saturation, value)).convert("RGB"))
    stacked(changed).save(HERE / "jittered-colour.png")


main()
