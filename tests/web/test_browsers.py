"""What tests of pages rely on: what a policy blocks is seen, and so is what keeps people out."""

from tests.web import browsers
from tests.web.pages import served

PAGE = """<!doctype html><html lang="en"><head><title>Test</title><script type="module" src="/test.js"></script></head>
<body><main><h1>Test</h1></main></body></html>"""
SCRIPT = "document.head.append(document.createElement('style')); document.querySelector('style').textContent = 'p {}';"
SCRIPT += "document.querySelector('main').append(document.createElement('button'));"


def test_what_a_policy_blocks_and_what_keeps_people_out_is_found(phone, tmp_path):
    with served(tmp_path, {"/": PAGE, "/test.js": SCRIPT}) as address:
        found = browsers.complaints(phone)
        phone.goto(address)
        phone.wait_for_selector("button")
        assert any("Content Security Policy" in one for one in found)
        assert [one["id"] for one in browsers.findings(phone)] == ["button-name"]
        phone.evaluate("document.querySelector('button').textContent = 'Join'")
        browsers.assert_usable_by_all(phone)
