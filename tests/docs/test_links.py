"""Links between pages lead somewhere, and every page can be found from the README."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "charts/pharos/README.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


def targets(page: Path) -> list[str]:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [link for link in LINK.findall(text) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """Names of headings, as hosts of repositories make them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    for link in targets(page):
        name, _, anchor = link.partition("#")
        leads_to = (page.parent / name).resolve() if name else page
        assert leads_to.exists(), link
        assert not anchor or anchor in anchors(leads_to), link


def test_every_page_is_found_from_the_readme() -> None:
    found, look = set(), [ROOT / "README.md"]
    while look:
        page = look.pop()
        if page in found or page.suffix != ".md":
            continue
        found.add(page)
        look += [(page.parent / link.partition("#")[0]).resolve() for link in targets(page) if link[0] != "#"]
    assert [str(page) for page in PAGES if page not in found and "adr" not in page.parts] == []
