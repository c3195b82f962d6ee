#!/usr/bin/env python3
"""Looks at the pages of the site in a browser, as readers with a telephone and with a wide screen see them.

    check_pages.py [--all] SITE FOLDER

FOLDER gets pictures of some pages. For these, at each width (with --all: for every page):

* The title and the navigation are visible, and nothing is wider than the window.
* The browser reports no error, and loads nothing from another host.

Pages are also opened with JavaScript switched off, in a narrow window. The same must hold there, and the page shows the text
that it shows with JavaScript. The pages of the reference are alike, and so are the decisions: without --all, one in four is
opened.

The search finds a page, and the address of the result opens it. The viewer of the demo draws the trace at each width.
Before all that, a page with one mistake of each kind must be found out.
Exit code 77: there is no browser, or no site.
"""

import argparse
import functools
import http.server
import pathlib
import sys
import threading

import browser

WIDTHS = (400, 1280)
PICTURES = {"index.html", "guide.html", "cookbook.html", "architecture.html", "reference/index.html", "reference/chan.html",
            "demo.html", "examples.html", "overview.html"}
# Elements that are wider than the window and cannot be scrolled within a parent.
TOO_WIDE = """(() => {
  const width = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth <= width && document.body.scrollWidth <= width) return found;
  for (const e of document.body.querySelectorAll('*')) {
    const box = e.getBoundingClientRect();
    if (box.right > width + 1 && box.width > 0) found.push(e.tagName + '.' + e.className + ' ' + Math.round(box.right));
  }
  return found.slice(0, 5).concat('page ' + document.documentElement.scrollWidth);
})()"""
VISIBLE = """(selector => [...document.querySelectorAll(selector)].some(e => {
  const box = e.getBoundingClientRect();
  return box.width > 0 && box.height > 0 && box.left >= 0 && box.left < innerWidth && getComputedStyle(e).visibility == 'visible';
}))"""
TEXT = "(document.querySelector('.md-content') ?? document.querySelector('main')).innerText.replace(/\\s+/g, ' ').trim()"


WRONG = """<title>another</title><main><h1 style="display: none">hidden</h1><div style="width: 3000px">wide</div>
<img src="http://example.org/a.png"><script>console.error('an error of the page')</script></main>"""
MISTAKES = ("the title is another", "no heading is visible", "no navigation is visible", "nav.md-tabs a is not visible", "wider than the window",
            "an error of the page", "asks for ['http://example.org/a.png']")


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Checker:
    def __init__(self, driver, site, folder, address):
        self.driver, self.site, self.folder, self.address = driver, site, folder, address
        self.problems = []

    def pages(self, every):
        """The pages that MkDocs made, and one with the text of a file."""
        made = [p for p in sorted(self.site.rglob("*.html")) if "source" not in p.relative_to(self.site).parts]
        shown = [str(p.relative_to(self.site)) for p in made if p.name != "404.html" and p.parent.name != "demo"]
        if not every:
            alike = [p for p in shown if p.startswith(("reference/", "decisions/")) and p not in PICTURES]
            left_out = set(alike) - set(alike[::4])
            shown = [p for p in shown if p not in left_out]
        return shown + [str(next(self.site.rglob("source/**/*.cc.html")).relative_to(self.site))]

    def claim(self, page, width, holds, text):
        if not holds:
            self.problems.append(f"{page} at {width}: {text}")

    def look(self, every):
        self.control()
        pages = self.pages(every)
        texts = {}
        for width in WIDTHS:
            with_script = self.driver.tab(width=width)
            for page in pages if every else [p for p in pages if p in PICTURES]:
                texts[page] = self.look_at(with_script, page, width)
                if page in PICTURES:
                    with_script.picture(self.picture(page, width))
            with_script.close()
        without = self.driver.tab(width=WIDTHS[0], script=False)
        for page in pages:
            self.look_at(without, page, f"{WIDTHS[0]}, without JavaScript")
            text = without.evaluate(TEXT)
            self.claim(page, WIDTHS[0], len(text) > 100 and text == texts.get(page, text), "another text without JavaScript")
            if page == "guide.html":
                without.picture(self.folder / "without_javascript.png")
        without.close()
        self.look_in_the_dark()
        self.search()
        for width in WIDTHS:
            self.demo(width)
        return len(pages)

    def picture(self, page, width):
        return self.folder / f"{page.removesuffix('.html').replace('/', '-')}_{width}.png"

    def look_at(self, tab, page, width):
        """Opens a page, checks what holds for all pages, and returns its text."""
        tab.open(self.address + page)
        listing = page.startswith("source/")
        title = tab.evaluate("document.title")
        self.claim(page, width, "gumption" in title, f"the title is {title}")
        self.claim(page, width, tab.evaluate(VISIBLE + "('h1')"), "no heading is visible")
        navigation = "header a" if listing else "header.md-header, nav.md-tabs"
        self.claim(page, width, tab.evaluate(VISIBLE + f"('{navigation}')"), "no navigation is visible")
        if not listing:
            # A narrow page has a button for the navigation, a wide one has tabs.
            button = "nav.md-tabs a" if width == WIDTHS[1] else "label[for=__drawer]"
            self.claim(page, width, tab.evaluate(VISIBLE + f"('{button}')"), f"{button} is not visible")
        wide = tab.evaluate(TOO_WIDE)
        self.claim(page, width, not wide, f"wider than the window: {wide}")
        self.claim(page, width, not tab.errors, f"errors: {tab.errors}")
        away = [r for r in tab.requests if not r.startswith((self.address, "data:", "blob:"))]
        self.claim(page, width, not away, f"asks for {away}")
        return tab.evaluate(TEXT)

    def control(self):
        """Looks at a page with mistakes, and claims that each of them is a problem."""
        name = "wrong.html"
        (self.site / name).write_text(WRONG)
        tab = self.driver.tab(width=WIDTHS[1])
        self.look_at(tab, name, WIDTHS[1])
        tab.close()
        (self.site / name).unlink()
        found, self.problems = "\n".join(self.problems), []
        for mistake in MISTAKES:
            self.claim(name, WIDTHS[1], mistake in found, f"not found out: {mistake}")

    def look_in_the_dark(self):
        light, dark = (self.driver.tab(width=1280, dark=d) for d in (False, True))
        for tab, scheme in ((light, "default"), (dark, "slate")):
            tab.open(self.address + "index.html")
            tab.wait(f"document.body.dataset.mdColorScheme == '{scheme}'")
        colours = [t.evaluate("getComputedStyle(document.body).backgroundColor") for t in (light, dark)]
        self.claim("index.html", 1280, colours[0] != colours[1], f"light and dark look the same: {colours}")
        dark.picture(self.folder / "dark.png")
        light.close()
        dark.close()

    def search(self):
        tab = self.driver.tab(width=1280)
        tab.open(self.address + "index.html")
        tab.evaluate("document.querySelector('input.md-search__input').focus()")
        tab.call("Input.insertText", text="WaitGroup")
        # The page listens to keys only after it has prepared itself, so a key is pressed again and again.
        found = tab.wait("""(() => {
          document.querySelector('input.md-search__input').dispatchEvent(new KeyboardEvent('keyup'));
          return [...document.querySelectorAll('.md-search-result__link')].map(a => a.href)
            .filter(h => h.includes('sync-waitgroup'))[0];
        })()""")
        self.claim("index.html", 1280, found.startswith(self.address), f"the search leads to {found}")
        tab.picture(self.folder / "search.png")
        self.claim("index.html", 1280, not tab.errors, f"errors of the search: {tab.errors}")
        tab.open(found)
        self.claim(found, 1280, "WaitGroup" in tab.evaluate(TEXT), "the page found does not have the word")
        tab.close()

    def demo(self, width):
        tab = self.driver.tab(width=width)
        tab.open(self.address + "demo/trace.html")
        drawn = """(() => [...document.querySelectorAll('canvas')].some(c => {
          if (!c.width || !c.height) return false;
          const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
          for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
          return seen.size > 3;
        }))()"""
        tab.wait(drawn)
        wide = tab.evaluate(TOO_WIDE)
        self.claim("demo/trace.html", width, not wide, f"wider than the window: {wide}")
        self.claim("demo/trace.html", width, not tab.errors, f"errors: {tab.errors}")
        tab.picture(self.folder / f"trace_{width}.png")
        tab.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="open every page at each width")
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    if not browser.find():
        print("check_pages: skipped, because there is no browser: install chromium")
        return 77
    site = arguments.site.resolve()
    if not (site / "index.html").exists():
        print(f"check_pages: skipped, because there is no site in {site}")
        return 77
    arguments.folder.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with browser.Browser(arguments.folder.resolve()) as driver:
            checker = Checker(driver, site, arguments.folder, f"http://127.0.0.1:{server.server_port}/")
            count = checker.look(arguments.all)
    finally:
        server.shutdown()
    for problem in checker.problems:
        print(problem)
    print(f"check_pages: {count} pages, {len(checker.problems)} problems")
    return 1 if checker.problems else 0


if __name__ == "__main__":
    sys.exit(main())
