// `npm test`, or `npm test -- tests/js/one.test.js`: node's own runner over tests/js/**/*.test.js.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

const named = process.argv.slice(2);
const all = () => readdirSync(join(ROOT, "tests/js"), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".test.js")).sort().map((file) => join("tests/js", file));
const files = named.length ? named : all();
if (!files.length) throw new Error("no test was found in tests/js");
const done = spawnSync(process.execPath, ["--import", "./tools/resolve.mjs", "--test", "--test-reporter=spec", ...files], { cwd: ROOT, stdio: "inherit" });
process.exitCode = done.status ?? 1;
