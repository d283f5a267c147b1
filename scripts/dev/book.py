#!/usr/bin/env python3
"""mdBook preprocessor that adds README.md, CHANGELOG.md and the READMEs of results/ as chapters.

mdBook itself publishes only files below docs/. Links between documents are rewritten to their paths on the site; links to
other files of the repository become plain text.
"""

import json
import pathlib
import posixpath
import re
import sys

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def site_path(path):
    """Returns the path of a document on the site."""
    if path.startswith("docs/"):
        path = path.removeprefix("docs/")
    elif path == "README.md":
        path = "overview.md"
    elif path.startswith("results/"):
        path = "results/" + (path.split("/")[1] if path.count("/") == 2 else "overview.md")
        path = path if path.endswith(".md") else path + ".md"
    return path


def chapter(root, path, title):
    text = (root / path).read_text()
    site = site_path(path)
    return {
        "Chapter": {
            "name": title,
            "content": text,
            "number": None,
            "sub_items": [],
            "path": site,
            "source_path": None,
            "parent_names": [],
        }
    }


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    root = pathlib.Path(context["root"])
    results = sorted(path.relative_to(root).as_posix() for path in root.glob("results/*/README.md"))
    outside = ["README.md", "CHANGELOG.md", "results/README.md", *results]

    def title(path):
        return (root / path).read_text().split("\n", 1)[0].removeprefix("# ")

    overview, changelog, summary, *folders = [chapter(root, path, title(path)) for path in outside]
    summary["Chapter"]["sub_items"] = folders
    book["sections"][0:0] = [overview]
    book["sections"] += [{"PartTitle": "Project"}, summary, changelog]

    sources = {site_path(path): path for path in outside}

    def rewrite(sections):
        for item in sections:
            page = item.get("Chapter") if isinstance(item, dict) else None
            if not page:
                continue
            site = page["path"]
            # mdBook may already have renamed README.md to index.md; source_path keeps the original name.
            source = sources.get(site, "docs/" + (page["source_path"] or site))
            here = posixpath.dirname(source)

            def relative(match, is_image):
                text, link = match[1], match[2]
                if "://" in link or link.startswith("#"):
                    return match[0]
                file, hash_sign, anchor = link.partition("#")
                target = posixpath.normpath(posixpath.join(here, file))
                is_document = target.endswith(".md") and (target.startswith("docs/") or target in outside)
                # The site has no page for a folder.
                if not is_document and (not target.startswith("docs/") or (root / target).is_dir()):
                    return text
                to = posixpath.relpath(site_path(target), posixpath.dirname(site) or ".")
                to = re.sub(r"(^|/)README\.md$", r"\1index.md", to)
                return f"{'!' if is_image else ''}[{text}]({to}{hash_sign}{anchor})"

            page["content"] = IMAGE.sub(lambda match: relative(match, True), page["content"])
            page["content"] = LINK.sub(lambda match: relative(match, False), page["content"])
            rewrite(page["sub_items"])

    rewrite(book["sections"])
    json.dump(book, sys.stdout)


main()
