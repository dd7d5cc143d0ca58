// Makes the libraries in src/crowdfl/web/vendor from npm's packages: `npm run vendor`, or `node tools/vendor.mjs FOLDER`.
// The versions are those of package-lock.json; the bundles are not minified, so that they can be read.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

/** @typedef {{ file: string, packages: string[], code: string, loader: "js" | "css" }} Bundle */

/** @type {Bundle[]} */
const BUNDLES = [
  {
    file: "hpke.js",
    packages: ["@hpke/core", "@hpke/chacha20poly1305", "@hpke/common"],
    loader: "js",
    // The cipher alone is not an export of its package, so it is taken by its path.
    code: `export { CipherSuite, DhkemX25519HkdfSha256, HkdfSha256, HpkeError } from "@hpke/core";
export { Chacha20Poly1305 } from "@hpke/chacha20poly1305";
export { chacha20poly1305 } from "./node_modules/@hpke/chacha20poly1305/esm/src/chacha/chacha.js";`,
  },
  { file: "uplot.js", packages: ["uplot"], loader: "js", code: `export { default } from "uplot";` },
  { file: "uplot.css", packages: ["uplot"], loader: "css", code: `@import "./node_modules/uplot/dist/uPlot.min.css";` },
];

/** What tsc needs to know: it finds the packages themselves, a browser finds the bundles. */
const TYPES = {
  "hpke.d.ts": `export { CipherSuite, DhkemX25519HkdfSha256, HkdfSha256, HpkeError } from "@hpke/core";
export { Chacha20Poly1305 } from "@hpke/chacha20poly1305";

/** ChaCha20-Poly1305 (RFC 8439): key of 32 bytes, nonce of 12. \`decrypt\` throws when the tag is wrong. */
export function chacha20poly1305(key: Uint8Array, nonce: Uint8Array, aad?: Uint8Array): {
  encrypt(plaintext: Uint8Array): Uint8Array<ArrayBuffer>;
  decrypt(ciphertext: Uint8Array): Uint8Array<ArrayBuffer>;
};
`,
  "uplot.d.ts": `export { default } from "uplot";\n`,
};

/** @param {string} name */
const locked = (name) => JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")).packages[`node_modules/${name}`];

/** @param {string} name */
const installed = (name) => JSON.parse(readFileSync(join(ROOT, "node_modules", name, "package.json"), "utf8")).version;

/** @param {string} name */
function described(name) {
  const { version, integrity } = locked(name);
  if (installed(name) !== version) throw new Error(`${name} is ${installed(name)}, the lock says ${version}: run npm ci`);
  return { name, version, integrity };
}

/** @param {Bundle} bundle */
async function made({ file, packages, code, loader }) {
  const versions = packages.map(described).map(({ name, version }) => `${name} ${version}`).join(", ");
  const result = await build({
    stdin: { contents: code, resolveDir: ROOT, loader },
    absWorkingDir: ROOT,
    bundle: true,
    preserveSymlinks: true,
    write: false,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "inline",
    banner: { [loader]: `/* ${versions}: made by tools/vendor.mjs, not written here. Licences: see LICENSES. */` },
  });
  const text = result.outputFiles[0].text;
  return { file, text };
}

/** The licence of each package, once where they share one. @param {string[]} packages */
function licences(packages) {
  /** @type {Map<string, string[]>} */
  const texts = new Map();
  for (const name of packages) {
    const text = readFileSync(join(ROOT, "node_modules", name, "LICENSE"), "utf8").trim();
    texts.set(text, [...(texts.get(text) ?? []), name]);
  }
  const noble = "Parts of @hpke/common and @hpke/chacha20poly1305 come from noble-ciphers, noble-curves and noble-hashes:\n"
    + "MIT License (c) 2022 and 2023 Paul Miller (paulmillr.com), under the words of the first licence below.";
  return [noble, ...[...texts].map(([text, names]) => `${names.join(", ")}\n\n${text}`)].join(`\n\n${"-".repeat(72)}\n\n`) + "\n";
}

/** @param {string} folder */
async function main(folder) {
  mkdirSync(folder, { recursive: true });
  const files = await Promise.all(BUNDLES.map(made));
  const vendored = files.map(({ file, text }, place) => ({
    file,
    sha256: createHash("sha256").update(text).digest("hex"),
    packages: BUNDLES[place].packages.map(described),
  }));
  const texts = {
    ...Object.fromEntries(files.map(({ file, text }) => [file, text])),
    ...TYPES,
    "VENDORED.json": `${JSON.stringify(vendored, null, 2)}\n`,
    LICENSES: licences([...new Set(BUNDLES.flatMap(({ packages }) => packages))]),
  };
  for (const [name, text] of Object.entries(texts)) writeFileSync(join(folder, name), text);
}

if (!process.argv[2]) throw new Error("say into which folder: node tools/vendor.mjs FOLDER");
await main(process.argv[2]);
