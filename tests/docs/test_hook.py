"""Links of the repository's view become those of the site; code stays as it is."""

import pytest

from tests.docs.conftest import load_tool

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
hook = load_tool("docs_hook")

CASES = {
    "a page beside": ("running.md", "[x](settings.md#task)", "[x](settings.md#task)"),
    "a page above docs": ("running.md", "[x](../SECURITY.md#assumptions)", "[x](project/SECURITY.md#assumptions)"),
    "from above docs": ("project/SECURITY.md", "[x](docs/running.md#a)", "[x](../running.md#a)"),
    "beside, above docs": ("project/SECURITY.md", "[x](CONTRIBUTING.md)", "[x](CONTRIBUTING.md)"),
    "a page of the laboratory": ("running.md", "[x](../lab/docs/audit.md#a)", "[x](lab/audit.md#a)"),
    "from the laboratory": ("lab/audit.md", "[x](../../docs/gpu.md)", "[x](../gpu.md)"),
    "the README is the index": ("running.md", "[x](../README.md)", "[x](index.md)"),
    "a page of the API": ("own-data.md", "[x](api/learning.md)", "[x](api/learning.md)"),
    "up from the API": ("api/index.md", "[x](../settings.md)", "[x](../settings.md)"),
    "a picture": ("project/CONTRIBUTING.md", "![x](docs/img/roles.svg)", "![x](../img/roles.svg)"),
    "code that the site lacks": ("running.md", "[`vectors/`](../vectors) and more", "`vectors/` and more"),
    "a page that is named": ("running.md", "see docs/gpu.md.", "see [docs/gpu.md](gpu.md)."),
    "a page that is named above": ("gpu.md", "SECURITY.md says", "[SECURITY.md](project/SECURITY.md) says"),
    "a page that is made": ("running.md", "see docs/settings.md.", "see [docs/settings.md](settings.md)."),
    "a page of the laboratory that is made": (
        "lab/audit.md",
        "lab/docs/commands.md",
        "[lab/docs/commands.md](commands.md)",
    ),
    "one that is not there": ("running.md", "[x](nowhere.md), docs/nowhere.md", "[x](nowhere.md), docs/nowhere.md"),
    "elsewhere": ("running.md", "[x](https://example.org/docs/gpu.md)", "[x](https://example.org/docs/gpu.md)"),
    "a place here": ("running.md", "[x](#a)", "[x](#a)"),
    "code in a line": ("running.md", "`docs/gpu.md`", "`docs/gpu.md`"),
    "code that is fenced": ("running.md", "```sh\ncat docs/gpu.md\n```\n", "```sh\ncat docs/gpu.md\n```\n"),
    "code that is indented": ("running.md", "x\n\n    cat docs/gpu.md\n", "x\n\n    cat docs/gpu.md\n"),
}


@pytest.mark.parametrize(("page", "before", "after"), CASES.values(), ids=CASES)
def test_a_link_leads_to_its_place_in_the_site(page, before, after):
    """Or becomes its text; one that leads nowhere stays, for MkDocs to complain about."""
    assert hook.rewritten(before, page) == after
