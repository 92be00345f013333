// A browser with the page open, and what is asked of every page.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

import { chromium } from "playwright-core";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** Milliseconds that the browser has for each step: far more than it needs, as a machine may be busy. */
const PATIENCE = 120_000;

export const launch = () =>
  chromium.launch({
    timeout: PATIENCE,
    executablePath: process.env.PARDA_CHROMIUM ?? "/usr/bin/chromium",
    // Root may not have Chromium's sandbox; the page is our own.
    args: ["--no-sandbox"],
  });

/** Opens the page, and keeps whatever the browser complains of. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, bypassCSP: false, ...options });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(url);
  await page.getByRole("status").getByText("live").waitFor();
  return { page, complaints, close: () => context.close() };
}

/** Each chart has something on it, beside its grid. */
export async function chartsDraw(page, least) {
  const drawn = (least) =>
    [...document.querySelectorAll(".u-wrap canvas")].filter((canvas) => {
      if (canvas.width * canvas.height === 0) return false;
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0);
      const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
      let coloured = 0;
      // A grid is grey.
      for (let i = 0; i < data.length; i += 4) {
        const spread = Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]);
        if (data[i + 3] > 128 && spread > 60) coloured += 1;
      }
      return coloured > 100;
    }).length >= least;
  await page.waitForFunction(drawn, least);
}

/** Neither the page nor anything on it is wider than the window, save what scrolls by itself. */
export async function fits(page) {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `the page is ${wide} px wide in a window of ${window}`);
}

/** axe-core finds nothing serious. Its script is handed over by the driver: the page's policy lets no page load it. */
export async function accessible(page, where) {
  const source = await (await import("node:fs/promises")).readFile(axe, "utf8");
  await page.evaluate(source);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const found = serious.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
  assert.deepEqual(found, [], `${where}: axe-core`);
}
