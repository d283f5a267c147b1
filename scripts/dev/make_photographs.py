#!/usr/bin/env python3
"""Creates JPEG files of ImageNet's size, about 500 x 375 pixels and 110 KB, to measure decoding.

    python3 -m venv /tmp/photographs && /tmp/photographs/bin/pip install pillow
    /tmp/photographs/bin/pip download --no-deps --dest /tmp/photographs scikit-image scikit-learn
    /tmp/photographs/bin/python scripts/dev/make_photographs.py /tmp/photographs target/photographs [COUNT]

The photographs come from the wheels of scikit-learn and scikit-image, which need not be installed. The files are
reproducible: seeded random crops, half of them mirrored, with edges of 333 to 500 pixels. The JPEG quality is the one whose
file size is closest to a random size around 115 KB.
"""

import io
import random
import sys
import zipfile
from pathlib import Path

from PIL import Image, ImageOps

NAMES = ("astronaut", "chelsea", "coffee", "china", "flower", "rocket", "motorcycle", "retina", "hubble")
SHAPES = [(500, 375)] * 5 + [(375, 500)] * 2 + [(500, 333), (400, 350), (500, 500)]


def photographs(folder):
    found = []
    for wheel in sorted(folder.glob("scikit_*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                path = Path(name)
                if path.suffix in (".jpg", ".png") and path.stem.startswith(NAMES):
                    image = Image.open(io.BytesIO(archive.read(name))).convert("RGB")
                    if min(image.size) >= 300:
                        found.append((path.name, image))
    return found


def encode(image, quality):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def main():
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    sources = photographs(folder)
    if not sources:
        sys.exit(f"{folder} has no wheel of scikit-image or scikit-learn with photographs: run pip download (see --help)")
    output.mkdir(parents=True, exist_ok=True)
    draw = random.Random(16)
    pixels = sizes = 0
    for number in range(count):
        _, source = sources[number % len(sources)]
        width, height = draw.choice(SHAPES)
        part = min(source.width / width, source.height / height) * draw.uniform(0.6, 1.0)
        wide, high = width * part, height * part
        left, top = draw.uniform(0, source.width - wide), draw.uniform(0, source.height - high)
        image = source.resize((width, height), Image.Resampling.LANCZOS, box=(left, top, left + wide, top + high))
        if draw.random() < 0.5:
            image = ImageOps.mirror(image)
        wanted = draw.gauss(115_000, 25_000)
        files = (encode(image, quality) for quality in range(70, 101, 2))
        file = min(files, key=lambda file: abs(len(file) - wanted))
        (output / f"{number:04}.jpg").write_bytes(file)
        pixels += width * height
        sizes += len(file)
    print(f"{count} files from {len(sources)} photographs, {sizes / count / 1000:.0f} KB and {pixels / count / 1000:.0f} kpx each")


if __name__ == "__main__":
    if "--help" in sys.argv or len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
