"""Reading pages in tests: tags that match, identifiers, references, tables, visible text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Fails on tags that do not match and on attributes that run scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        for key, value in attrs:
            if key == "id":
                self.ids.append(value or "")
            if key in ("src", "href", "xlink:href", "clip-path", "action", "data"):
                self.references.append(value or "")
            assert not key.startswith("on"), key
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def body(self, heading: str) -> list[list[str]]:
        """Rows of the first table whose heading starts with a text, without the heading."""
        return next(t[1:] for t in self.tables if t and "|".join(t[0]).startswith(heading))


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    assert page.open == []
    return page


def loaded(page: Page, text: str) -> list[str]:
    """What a page would load or run from elsewhere; nothing, for one that opens offline."""
    found = re.findall(r"(?:https?:)?//[\w-]+\.[a-z]{2,}", text)
    inside = r"#[\w.-]+|url\(#[\w.-]+\)|data:image/png;base64,[\w+/=\s]+"
    found += [ref for ref in page.references if not re.fullmatch(inside, ref)]
    found += sorted({"link", "img", "iframe", "object", "base"} & set(page.tags))
    found += [rule for rule in ("@import", "@font-face") if rule in text]
    return found + ["script"] * (page.tags.count("script") - 1)


def faults(page: Page) -> list[str]:
    """What keeps a page from being read aloud, sorted and linked within; nothing, if it is well."""
    found = [f"#{each} stands twice" for each in set(page.ids) if page.ids.count(each) > 1]
    links = [ref for ref in page.references if not ref.startswith("data:")]
    targets = {re.sub(r"^url\(|[#)]", "", ref) for ref in links}
    found += [f"#{each} leads nowhere" for each in sorted(targets - set(page.ids))]
    for tag, given in page.attributes:
        if tag == "th" and given.get("scope") not in ("row", "col"):
            found.append(f"a heading without a scope: {given}")
        if tag == "td" and not _number(given.get("data-value") or "0"):
            found.append(f"a value that is no number: {given}")
        if tag == "svg" and not given.get("aria-label") and given.get("aria-hidden") != "true":
            found.append(f"a drawing without a label: {given}")
    return found


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
