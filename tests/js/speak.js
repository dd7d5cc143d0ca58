// Makes a page's code speak in a test, as its main module does.
import { speak } from "#web/common/text.js";

const WEB = new URL("../../src/crowdfl/web/", import.meta.url);

/** @param {string} [page] @param {string} [code] */
export async function speakAs(page = "phone", code = "en") {
  const folders = ["common", page];
  const found = await Promise.all(folders.map((folder) => import(new URL(`${folder}/text/${code}.js`, WEB).href)));
  speak(code, ...found.map((module) => module.default));
}
