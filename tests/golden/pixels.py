#!/usr/bin/env python3
"""Creates the files in pixels/ with Pillow and OpenCV, as reference for the tests of ringmark-input.

Regenerate them with Pillow 13.0.0, opencv-python-headless 4.14.0 and numpy 2.4.6 (seconds):

    python3 -m venv /tmp/pixels && /tmp/pixels/bin/pip install pillow==13.0.0 'opencv-python-headless==4.14.0.*' numpy==2.4.6
    /tmp/pixels/bin/python tests/golden/pixels.py

`source.png` is the picture: waves of various lengths in each channel, a gray and a saturated patch. The other files:

`*.jpg`                      written by Pillow; `*.jpg.png` is the result of convert("RGB"); `inks.jpg` is CMYK
`png_*.png`                  other color types and bit depths; `png_*.png.png` is the result of convert("RGB")
`antialias_N.png`            resized by Pillow with a box; `cut_N.png` cropped before resizing, as in torchvision
`bilinear_N.png`             resized by OpenCV, then cropped
`hls_N.png`, `warp_N.png`    MXNet's color and affine transformations, by OpenCV

`cases.json` contains their arguments.
"""

import json
import math
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

FOLDER = Path(__file__).parent / "pixels"
WIDTH, HEIGHT = 36, 27
# Left, top, width and height of a box; width and height of the output.
BOXES = [([0, 0, 36, 27], [16, 12]), ([3.5, 2.25, 27.5, 20], [13, 13]), ([5, 4, 11, 9], [24, 18])]
CUTS = [([5, 4, 22, 19], [9, 9]), ([30, 20, 6, 7], [10, 10])]
# Size to which the whole image is resized; left, top, width and height of the crop.
RESIZES = [([18, 14], [0, 0, 18, 14]), ([23, 17], [4, 3, 13, 13]), ([47, 35], [20, 9, 17, 17])]
# Changes of hue, lightness and saturation.
SHIFTS = [[0, 0, 0], [36, 50, -50], [-20, -13, 44]]
# Angle in degrees, shear and aspect ratio; left and top of the 16 x 16 crop.
WARPS = [([10, 0.1, 1.25], [0, 0]), ([-7, -0.06, 0.8], [20, 11]), ([0, 0, 1.0], [3, 5])]


def picture():
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    channels = [
        128 + 60 * np.sin(x / 3) + 50 * np.cos(y / 5),
        128 + 90 * np.sin((x + 2 * y) / 7) + 20 * np.cos(x * y / 30),
        128 + 70 * np.cos((x - y) / 4) + 40 * np.sin(y / 2),
    ]
    pixels = np.stack(channels, axis=-1).clip(0, 255).astype(np.uint8)
    pixels[2:8, 4:12] = 200
    pixels[18:24, 22:30] = [250, 5, 40]
    return pixels


def save(name, pixels):
    Image.fromarray(np.ascontiguousarray(pixels)).save(FOLDER / f"{name}.png", optimize=True)


def save_with_reading(name, image, **options):
    image.save(FOLDER / name, **options)
    save(name, np.asarray(Image.open(FOLDER / name).convert("RGB")))


def shifted(pixels, shift):
    hls = cv2.cvtColor(pixels, cv2.COLOR_RGB2HLS).astype(int) + shift
    return cv2.cvtColor(hls.clip(0, [180, 255, 255]).astype(np.uint8), cv2.COLOR_HLS2RGB)


def warped(pixels, angle, shear, ratio):
    a, b = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    height = 2 / (1 + ratio)
    width = ratio * height
    rows = np.array([[height * a - shear * b * width, height * b + shear * a * width], [-b * width, a * width]])
    edges = np.array([WIDTH, HEIGHT])
    matrix = np.column_stack([rows, (edges - rows @ edges) / 2])
    return cv2.warpAffine(pixels, matrix, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR, borderValue=(127, 127, 127))


def main():
    FOLDER.mkdir(exist_ok=True)
    pixels = picture()
    source = Image.fromarray(pixels)
    save("source", pixels)
    save_with_reading("baseline.jpg", source, quality=85)
    save_with_reading("progressive.jpg", source, quality=85, progressive=True)
    save_with_reading("full.jpg", source, quality=92, subsampling=0)
    save_with_reading("grayscale.jpg", source.convert("L"), quality=85)
    save_with_reading("inks.jpg", source.convert("CMYK"), quality=85)
    save_with_reading("restart.jpg", source, quality=85, restart_marker_blocks=2)
    save_with_reading("rgb.jpg", source, quality=85, keep_rgb=True)
    small = source.crop((0, 0, 12, 9))
    save_with_reading("png_palette.png", small.quantize(16))
    save_with_reading("png_gray.png", small.convert("L"))
    save_with_reading("png_gray_alpha.png", small.convert("LA"))
    alpha = small.convert("RGBA")
    alpha.putalpha(small.convert("L"))
    save_with_reading("png_alpha.png", alpha)

    for number, (box, size) in enumerate(BOXES):
        left, top, width, height = box
        box = (left, top, left + width, top + height)
        save(f"antialias_{number}", np.asarray(source.resize(size, Image.Resampling.BILINEAR, box=box)))
    for number, ((left, top, width, height), size) in enumerate(CUTS):
        part = source.crop((left, top, left + width, top + height))
        save(f"cut_{number}", np.asarray(part.resize(size, Image.Resampling.BILINEAR)))
    for number, (size, (left, top, width, height)) in enumerate(RESIZES):
        resized = cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)
        save(f"bilinear_{number}", resized[top : top + height, left : left + width])
    for number, shift in enumerate(SHIFTS):
        save(f"hls_{number}", shifted(pixels, shift))
    for number, (distortion, (left, top)) in enumerate(WARPS):
        save(f"warp_{number}", warped(pixels, *distortion)[top : top + 16, left : left + 16])
    cases = {"boxes": BOXES, "cuts": CUTS, "resizes": RESIZES, "shifts": SHIFTS, "warps": WARPS}
    (FOLDER / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
