// Which English sentences the translations were last compared with: `node --import ./tools/resolve.mjs tools/looked-at.mjs` says that
// they were, all of them and in every language, and a test finds those that have changed since (tests/js/common/text.test.js).
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const FOLDERS = ["common", "console", "phone", "requester", "tasks"];
const WEB = new URL("../src/crowdfl/web/", import.meta.url);
const KEPT = new URL("../tests/js/common/looked-at.json", import.meta.url);

/** A few digits of each sentence's hash, by its folder, section and name. @returns {Promise<Record<string, string>>} */
export async function fingerprints() {
  const found = await Promise.all(FOLDERS.map(async (folder) => {
    const sections = (await import(new URL(`${folder}/text/en.js`, WEB).href)).default;
    return Object.entries(sections).flatMap(([section, sentences]) => Object.entries(sentences).map(([name, text]) =>
      [`${folder} ${section}.${name}`, createHash("sha256").update(JSON.stringify(text)).digest("hex").slice(0, 8)]));
  }));
  return Object.fromEntries(found.flat().sort(([one], [other]) => (one < other ? -1 : 1)));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(KEPT, `${JSON.stringify(await fingerprints(), null, 1)}\n`);
}
