"""The figures of docs/gallery: runs the code of its pages, and keeps the figures that they show.

python tools/gallery_pictures.py [page …]
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"


def main() -> None:
    chosen = sys.argv[1:] or sorted(page.stem for page in GALLERY.glob("*.md") if page.stem != "index")
    for name in chosen:
        text = (GALLERY / f"{name}.md").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            names: dict[str, object] = {}
            for block in re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
                exec(compile(block, name, "exec"), names)
            for figure in re.findall(r"!\[[^\]]*\]\((\w+\.svg)\)", text):
                shutil.copy(figure, GALLERY / figure)
            os.chdir(GALLERY)


if __name__ == "__main__":
    main()
