// Calls to SP. A session lasts while the operator does something, not while a page is open: the header says who made the page call.
import { Api, Refusal } from "../web/common/api.js";
import { t } from "../web/common/text.js";

export const BY_PAGE = "page";
const api = new Api("", () => "operator", () => t("login.away"));

/** @param {string} path Below /console/. @param {string} [mark] @returns {Promise<any>} */
export const get = (path, mark) => api.call("GET", path, { mark });
/** @param {string} path @param {unknown} [body] @returns {Promise<any>} */
export const post = (path, body) => api.call("POST", path, { body });
export const logOut = () => api.call("DELETE", "session");

/** Whose session this is, or null. @returns {Promise<{ name: string, host: string, left: number } | null>} */
export async function session() {
  try {
    return await get("session", BY_PAGE);
  } catch (refusal) {
    if (refusal instanceof Refusal && refusal.status === 401) return null;
    throw refusal;
  }
}

/** @param {string} task */
export const taskPath = (task) => `tasks/${encodeURIComponent(task)}`;
