#!/usr/bin/env python3
"""Dead links of a site that mdBook built.

    tools/site.py DIRECTORY

Every `href` and `src` of every page that is neither a URL nor a `data:` must lead to a file below DIRECTORY, and to an
`id` in it if it has a fragment. Prints those that do not, and fails if there are any. `make docs` runs it.
"""

import os
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page, and the places in it that links can lead to."""

    def __init__(self, file):
        super().__init__()
        self.links, self.ids = [], set()
        with open(file, encoding="utf-8") as text:
            self.feed(text.read())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def main():
    root = os.path.abspath(sys.argv[1])
    pages = {}
    for folder, _, files in os.walk(root):
        for file in files:
            if file.endswith(".html"):
                path = os.path.join(folder, file)
                pages[path] = Page(path)
    dead = []
    for path, page in sorted(pages.items()):
        # The page for what is not found, and the one for printers, stand for other places.
        if os.path.basename(path) in ("404.html", "print.html", "toc.html"):
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = os.path.normpath(os.path.join(os.path.dirname(path), unquote(parts.path)))
            inside = target.startswith(root + os.sep) and os.path.isfile(target)
            fragment = unquote(parts.fragment)
            if not inside or (fragment and target in pages and fragment not in pages[target].ids):
                dead.append(f"{os.path.relpath(path, root)}: {link}")
    for line in sorted(set(dead)):
        print(f"docs: a dead link in {line}", file=sys.stderr)
    sys.exit(1 if dead or not pages else 0)


if __name__ == "__main__":
    main()
