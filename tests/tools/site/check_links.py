#!/usr/bin/env python3
"""Checks the HTML of the site without a browser.

    check_links.py SITE

* Each link within the site leads to a file that exists, and to an element with the id behind its #.
* No page loads anything from another host: no script, style, picture, font or frame.
* Each page has a title, and its text is in the HTML, so it can be read without JavaScript.
"""

import collections
import html.parser
import pathlib
import re
import sys
import urllib.parse

# Attributes whose target a browser loads by itself.
LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("source", "srcset"),
         ("video", "src"), ("audio", "src"), ("object", "data"), ("embed", "src"), ("input", "src"), ("use", "href")}
OUTSIDE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.I)
NO_TEXT = {"script", "style", "template", "noscript"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.title, self.words = "", 0
        self.open = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.update(attributes[k] for k in ("id", "name") if attributes.get(k))
        if tag == "a" and attributes.get("href"):
            self.links.append((self.getpos()[0], attributes["href"]))
        for key in attributes:
            # A canonical link names an address, and loads nothing.
            if (tag, key) in LOADS and attributes[key] and attributes.get("rel") not in ("canonical", "next", "prev"):
                self.loads.append((self.getpos()[0], attributes[key]))
        if "style" in attributes:
            self.loads += [(self.getpos()[0], u) for u in urls(attributes["style"] or "")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        while tag in self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "title" in self.open and "svg" not in self.open:
            self.title += data
        elif "style" in self.open:
            self.loads += [(self.getpos()[0], u) for u in urls(data)]
        elif not NO_TEXT & set(self.open):
            self.words += len(data.split())


def urls(css):
    found = re.findall(r"url\(\s*['\"]?([^'\")]+)", css) + re.findall(r"@import\s+['\"]([^'\"]+)", css)
    return [u for u in found if not u.startswith(("data:", "#"))]


class Checker:
    def __init__(self, site):
        self.site = site
        self.pages = {p: Page(p) for p in sorted(site.rglob("*.html"))}
        self.problems, self.counts = [], collections.Counter()

    def target(self, page, address):
        """(file, fragment) of an address within the site, or None if it leads out of it."""
        if re.match(r"[a-z]+:", address) or address.startswith("//"):
            return None
        name, _, fragment = address.partition("#")
        name = urllib.parse.unquote(name.partition("?")[0])
        path = page if not name else (self.site / name[1:] if name.startswith("/") else page.parent / name).resolve()
        return (path / "index.html" if path.is_dir() else path), urllib.parse.unquote(fragment)

    def say(self, page, line, text):
        self.problems.append(f"{page.relative_to(self.site)}:{line}: {text}")

    def check(self):
        for path, page in self.pages.items():
            self.loads(path, page.loads)
            # MkDocs addresses the parts of its page for errors from the root of a server.
            if path.name == "404.html":
                continue
            if not page.title.strip():
                self.say(path, 1, "no title")
            if page.words < 20:
                self.say(path, 1, f"only {page.words} words without JavaScript")
            for line, address in page.links:
                self.link(path, line, address)
        for path in self.site.rglob("*.css"):
            self.loads(path, [(0, u) for u in urls(path.read_text())])

    def loads(self, path, found):
        for line, address in found:
            self.counts["loads"] += 1
            if address.startswith("data:"):
                continue
            if OUTSIDE.match(address):
                self.say(path, line, f"loads {address} from another host")
            elif not self.target(path, address)[0].exists():
                self.say(path, line, f"loads {address}, which does not exist")

    def link(self, path, line, address):
        self.counts["links"] += 1
        to = self.target(path, address)
        if to is None:
            return
        file, fragment = to
        if not file.is_relative_to(self.site):
            self.say(path, line, f"a link to {address}, outside of the site")
        elif not file.exists():
            self.say(path, line, f"a link to {address}, which does not exist")
        elif fragment and file in self.pages and fragment not in self.pages[file].ids:
            self.say(path, line, f"a link to {address}: no element has this id")


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    checker = Checker(site)
    checker.check()
    for problem in checker.problems:
        print(problem)
    print(f"check_links: {len(checker.pages)} pages, {checker.counts['links']} links, {checker.counts['loads']} files loaded, "
          f"{len(checker.problems)} problems")
    return 1 if checker.problems or not checker.pages else 0


if __name__ == "__main__":
    sys.exit(main())
