// Pictures of the page, to be looked at: node test/look.mjs DIR [URL]

import { chromium } from "playwright-core";

import { fleet } from "./fleet.mjs";

const [dir = ".", url] = process.argv.slice(2);
const served = url ? { url, close() {} } : await fleet();
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
for (const [name, width, height] of [["phone", 390, 844], ["desktop", 1280, 900]]) {
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme });
    const page = await context.newPage();
    page.on("console", (message) => console.log(message.text()));
    await page.goto(served.url);
    await page.waitForSelector(".u-over");
    await page.waitForTimeout(2500);
    await page.screenshot({ path: `${dir}/${name}-${colorScheme}.png`, fullPage: true });
    if (colorScheme === "dark") {
      await page.locator("button.link").first().click();
      await page.waitForTimeout(1500);
      await page.screenshot({ path: `${dir}/${name}-dialog.png` });
    }
    await context.close();
  }
}
await browser.close();
served.close();
