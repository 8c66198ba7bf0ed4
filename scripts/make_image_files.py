"""Writes the small images of crates/data/tests/images: what Pillow reads from files of each kind, and what it makes of them.

    pip install pillow==12.*
    python3 scripts/make_image_files.py
"""

from pathlib import Path
import random

from PIL import Image

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


main()
