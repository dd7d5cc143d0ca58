"""A page's modules in few files: the same code, once, in an order in which it can run."""

import json
import shutil

import pytest

from crowdfl.web.bundle import NotBundled, bundles
from tests.subprocesses import run

FILES = {
    "/a/app/first.js": """import { two as zwei } from "../lib/two.js";
import * as self from "./first.js";
import only from "../lib/only.js";
export const names = () => Object.keys(self).sort();
export async function later() { return (await import("./last.js")).sum + (await import("../lib/two.js")).two; }
export { zwei };
export const made = only + zwei;
""",
    "/a/lib/two.js": 'export { two } from "./deep.js";\n',
    "/a/lib/deep.js": '/** @type {import("./types.js").T} */\nexport const two = 2;\nexport class Other {}\n',
    "/a/lib/only.js": "const it = 40;\nexport {\n  it as default\n};\n",
    "/a/app/last.js": """import { made } from "./first.js";
export const sum = made;
export const place = () => import(`../text/${1}.js`);
export const worker = () => [new URL("../lib/worker.js", import.meta.url), new URL("./", location.href)];
""",
    "/a/lib/worker.js": 'import { two } from "./two.js";\nconsole.log(two);\n',
}
ROOTS = {"/a/one.js": "/a/app/first.js", "/a/rest.js": "/a/app/last.js"}


def test_bundles_run_as_the_modules_did(tmp_path):
    """Values, namespaces, defaults and what is loaded later; nothing is in two files that share a page."""
    made = bundles(FILES, ROOTS, {"/a/work.js": "/a/lib/worker.js"})
    assert list(made) == ["/a/one.js", "/a/rest.js", "/a/work.js"]
    assert [text.count("class Other") for text in made.values()] == [1, 0, 1]
    assert "import(`./text/${1}.js`)" in made["/a/rest.js"]
    assert '[new URL("./work.js", import.meta.url), new URL("./", location.href)]' in made["/a/rest.js"]
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    for address, text in made.items():
        (tmp_path / address.rsplit("/", 1)[1]).write_text(text)
    script = 'import { later, made, names, zwei } from "./one.js";\n'
    script += "console.log(JSON.stringify([made, zwei, names(), await later()]));"
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "run.js").write_text(script)
    found = run([node, "run.js"], cwd=tmp_path, capture_output=True, check=True, text=True).stdout
    assert json.loads(found) == [42, 2, ["later", "made", "names", "zwei"], 44]


@pytest.mark.parametrize("name", ["exported", "modules"])
def test_a_name_of_the_files_own_in_a_module_is_refused(name):
    """It would hide the table through which modules find each other."""
    text = f"export function {name}() {{}}\n"
    with pytest.raises(NotBundled, match=name):
        bundles(FILES | {"/a/lib/deep.js": FILES["/a/lib/deep.js"] + text}, ROOTS, {})


@pytest.mark.parametrize(
    "text",
    [
        'import { two } from "../lib/none.js";\n',
        'import "../lib/two.js";\n',
        "export let changes = 1;\n",
        "export default 1;\n",
        'import { sum } from "./last.js";\n',  # which is loaded later
    ],
)
def test_what_is_not_understood_is_refused_when_the_service_starts(text):
    with pytest.raises(NotBundled, match=r"/a/"):
        bundles(FILES | {"/a/app/first.js": text}, ROOTS, {})
