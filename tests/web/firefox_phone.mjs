// A phone's happy path in Firefox, sensors aside: the link, joining, a CSV file, every round, the pay.
//
// node tests/web/firefox_phone.mjs LINK CSV
import { PATIENCE, withFirefox } from "./firefox.mjs";

/** @typedef {import("puppeteer-core").Page} Page */

const [link, file] = process.argv.slice(2);
const PATIENT = { timeout: 3 * PATIENCE };
const PAUSE = 200; // milliseconds

/** Ask until it is so. Puppeteer's own waiting makes functions in the page, which the page's policy forbids. @param {string} what @param {() => Promise<boolean>} look */
async function until(what, look) {
  for (const end = Date.now() + PATIENT.timeout; Date.now() < end; await new Promise((go) => setTimeout(go, PAUSE))) {
    if (await look().catch(() => false)) return; // a page that loads has nothing to ask yet
  }
  throw new Error(`it was never there: ${what}`);
}

/** Press what says this. @param {Page} page @param {string} selector @param {string} words */
const press = (page, selector, words) => until(`${selector}, ${words}`, () => page.evaluate((one, said) => {
  const found = /** @type {HTMLElement | undefined} */ ([...document.querySelectorAll(one)].find((element) => element.textContent?.trim() === said));
  found?.click();
  return found !== undefined;
}, selector, words));

/** @param {Page} page @param {string} words */
const sees = (page, words) => until(words, () => page.evaluate((said) => document.body.innerText.includes(said), words));

const found = await withFirefox(async (page, said) => {
  await page.goto(link);
  await sees(page, "You are invited");
  const address = page.url();
  await press(page, "label", "I accept averages of as few as 3 people.");
  await press(page, "button", "Join");
  await press(page, "summary", "No sensors? Import a CSV file");
  await until("#csv", async () => (await page.$("#csv")) !== null);
  const input = await page.$("#csv");
  await /** @type {import("puppeteer-core").ElementHandle<HTMLInputElement>} */ (input).uploadFile(file);
  await sees(page, "42 sec of walking, sitting, and climbing stairs.");
  await press(page, "button", "Send my contribution");
  await until("Home", async () => (await page.$("#csv")) === null);
  await page.reload(); // keys, recordings and where it stands are kept
  await sees(page, "The campaign has ended.");
  await press(page, "a", "Round by round, with receipts");
  /** @type {string[]} */
  let rounds = [];
  await until("the rounds' table", async () => { // a busy machine draws it later
    rounds = await page.$$eval("table tbody tr", (rows) => rows.map((row) => row.textContent ?? ""));
    return rounds.length > 0;
  });
  await press(page, "a", "Back");
  await press(page, "a", "See my earnings");
  await sees(page, "It is claimed. Below is what became of it.");
  const headline = await page.$eval(".headline", (element) => element.textContent ?? "");
  return { address, rounds, headline, said };
});
console.log(JSON.stringify(found));
