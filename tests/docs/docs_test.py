#!/usr/bin/env python3
"""The documents lead somewhere: every page is reached from README.md, and the index names what it should."""
import glob
import os
import re
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def pages():
    return {os.path.relpath(path, ROOT) for folder in ("", "docs", "docs/decisions", "perf", "examples/*", "tools", "tools/*")
            for path in glob.glob(os.path.join(ROOT, folder, "*.md"))}


def without_code(text):
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def links(page):
    """The repository's files that a page links to, each with its anchor ("" for none)."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(read(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        yield (os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page), anchor


def anchors(page):
    headings = re.findall(r"^#+ +(.*)$", without_code(read(page)), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Documents(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in pages():
            for path, anchor in links(page):
                self.assertTrue(os.path.exists(os.path.join(ROOT, path)), f"{page} links to {path}")
                if anchor:
                    self.assertIn(anchor, anchors(path), f"{page} links to {path}#{anchor}")

    def test_every_page_is_reached_from_the_readme(self):
        reached, todo = set(), ["README.md"]
        while todo:
            page = todo.pop()
            if page in reached:
                continue
            reached.add(page)
            if os.path.isdir(os.path.join(ROOT, page)):  # whoever opens a folder sees what is in it
                todo.extend(other for other in pages() if os.path.dirname(other) == page)
            if not page.endswith(".md"):
                continue
            todo.extend(path for path, _ in links(page))
        self.assertEqual(pages() - reached, set())


class Index(unittest.TestCase):
    """docs/README.md."""

    def test_names_every_public_header(self):
        index = read("docs/README.md")
        for header in os.listdir(os.path.join(ROOT, "include/weft")):
            self.assertIn(f"`{header}`", index)

    def test_names_every_script(self):
        index = read("docs/README.md")
        for pattern in ("scripts/*.sh", "scripts/*.py", "perf/*.sh", "perf/*.py", "tools/*.py"):
            for path in glob.glob(os.path.join(ROOT, pattern)):
                self.assertIn(f"`{os.path.relpath(path, ROOT)}`", index)

    def test_the_page_on_measuring_names_every_program(self):
        page = read("perf/README.md")
        programs = [path for path in glob.glob(os.path.join(ROOT, "perf/*.py")) if "__main__" in read(path)]
        programs += glob.glob(os.path.join(ROOT, "perf/*.sh"))
        self.assertGreater(len(programs), 20)
        for path in programs:
            self.assertIn(f"`{os.path.basename(path)}`", page)

    def test_names_nothing_that_is_gone(self):
        for name in re.findall(r"`((?:scripts|perf|tools)/[\w./]+)`", read("docs/README.md")):
            self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)
        for name in re.findall(r"`(\w+\.hpp)`", read("docs/README.md")):
            self.assertTrue(os.path.exists(os.path.join(ROOT, "include/weft", name)), name)


class Settings(unittest.TestCase):
    def test_every_variable_is_documented(self):
        documented = read("docs/configuration.md")
        variables = re.findall(r'Setting\{"(WEFT_\w+)"', read("src/core/config.cpp"))
        self.assertGreater(len(variables), 5)
        for variable in variables:
            self.assertIn(f"| `{variable}` |", documented)


if __name__ == "__main__":
    unittest.main()
