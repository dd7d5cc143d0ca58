// A phone's happy path in Firefox, sensors aside: the link, joining, a CSV file, every round, the pay.
//
// node tests/web/firefox_phone.mjs LINK CSV
import { PATIENCE, withFirefox } from "./firefox.mjs";

/** @typedef {import("puppeteer-core").Page} Page */

const [link, file] = process.argv.slice(2);
const PATIENT = { timeout: 3 * PATIENCE };

/** Press what says this. @param {Page} page @param {string} selector @param {string} words */
async function press(page, selector, words) {
  const found = await page.waitForFunction((one, said) =>
    [...document.querySelectorAll(one)].find((element) => element.textContent?.trim() === said) ?? null, PATIENT, selector, words);
  await /** @type {import("puppeteer-core").ElementHandle<HTMLElement>} */ (found.asElement()).evaluate((element) => element.click());
}

/** @param {Page} page @param {string} words */
async function sees(page, words) {
  await page.waitForFunction((said) => document.body.innerText.includes(said), PATIENT, words);
}

const found = await withFirefox(async (page, said) => {
  await page.goto(link);
  await sees(page, "You are invited");
  const address = page.url();
  await press(page, "label", "I accept averages of as few as 3 people.");
  await press(page, "button", "Join");
  await sees(page, "Choose what you will do");
  await page.$eval("details summary", (summary) => /** @type {HTMLElement} */ (summary).click());
  const input = await page.waitForSelector("#csv", PATIENT);
  await /** @type {import("puppeteer-core").ElementHandle<HTMLInputElement>} */ (input).uploadFile(file);
  await sees(page, "42 s of walking, sitting, climbing stairs.");
  await press(page, "nav a", "Back");
  await page.reload(); // keys, recordings and where it stands are kept
  await sees(page, "The campaign has ended.");
  await press(page, "a", "Round by round, with receipts");
  const rounds = await page.$$eval("table tbody tr", (rows) => rows.map((row) => row.textContent ?? ""));
  await press(page, "nav a", "Back");
  await press(page, "a", "See my earnings");
  await sees(page, "is booked for you");
  const headline = await page.$eval(".headline", (element) => element.textContent ?? "");
  return { address, rounds, headline, said };
});
console.log(JSON.stringify(found));
