// Firefox as tests use it: the one that is installed, headless, over WebDriver BiDi.
//
// A script of a test imports `withFirefox` and prints its findings as one line of JSON; tests/web/firefox.py starts it.
// Sensors cannot be emulated here: a page must take a CSV file instead.
import puppeteer from "puppeteer-core";

export const PATIENCE = 200_000; // milliseconds that a page is waited for
const DEADLINE = 850_000; // before whoever started us loses patience and kills us: then Firefox would be left behind

/** @typedef {import("puppeteer-core").Browser} Browser */
/** @typedef {import("puppeteer-core").Page} Page */

/**
 * Open Firefox, work, close it: also when the time is up or when whoever started us is gone (standard input ends).
 * @template Found
 * @param {(page: Page, said: string[]) => Promise<Found>} work `said` collects errors of the page.
 * @param {string} [profile] A folder that keeps what pages store; by default a fresh one.
 */
export async function withFirefox(work, profile) {
  const browser = await puppeteer.launch({
    browser: "firefox",
    executablePath: process.env.CROWDFL_FIREFOX ?? "/usr/bin/firefox-esr",
    headless: true,
    acceptInsecureCerts: true,
    userDataDir: profile,
    defaultViewport: { width: 360, height: 740 },
  });
  try {
    return await Promise.race([worked(browser, work), interrupted()]);
  } finally {
    process.stdin.removeAllListeners("end").pause();
    await browser.close();
  }
}

/**
 * @template Found
 * @param {Browser} browser @param {(page: Page, said: string[]) => Promise<Found>} work
 */
async function worked(browser, work) {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  return work(page, complaints(page));
}

/** Fails when the time is up or standard input ends. @returns {Promise<never>} */
function interrupted() {
  return new Promise((_, fail) => {
    const stop = (/** @type {string} */ why) => () => fail(new Error(why));
    setTimeout(stop(`Firefox took longer than ${DEADLINE / 1000} s`), DEADLINE).unref();
    process.stdin.once("end", stop("whoever started this is gone")).resume();
  });
}

/** Errors of a page's scripts and on its console, as they come. @param {Page} page @returns {string[]} */
function complaints(page) {
  /** @type {string[]} */
  const said = [];
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("console", (message) => { if (message.type() === "error") said.push(message.text()); });
  return said;
}
