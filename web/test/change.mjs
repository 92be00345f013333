// Changes the shares of a VM on the page of a real agent: node test/change.mjs URL DISK SHARES TOKEN

import assert from "node:assert/strict";

import { chartsDraw, launch, open } from "./page.mjs";

const [url, disk, shares, token] = process.argv.slice(2);
const browser = await launch();
try {
  const { page, complaints } = await open(browser, url);
  await chartsDraw(page, 1);
  await page.getByRole("button", { name: disk, exact: true }).first().click();
  const dialog = page.getByRole("dialog", { name: disk });
  await dialog.getByLabel("Shares").fill(shares);
  await dialog.getByRole("button", { name: "Change" }).click();

  // Whoever has no token is asked for one, and has changed nothing.
  await dialog.getByLabel("Token").fill("a token of nobody, long enough");
  await dialog.getByRole("button", { name: "Change" }).click();
  await dialog.getByRole("status").filter({ hasText: /token/i }).waitFor();
  await dialog.getByLabel("Token").fill(token);
  await dialog.getByRole("button", { name: "Change" }).click();
  await dialog.getByText(`shares ${shares} in force`).waitFor();
  await page.keyboard.press("Escape");

  // Without a reload of the page: the row, and the event.
  const row = page.getByRole("row").filter({ has: page.getByRole("button", { name: disk, exact: true }) });
  await row.getByText(Number(shares).toLocaleString("en")).waitFor();
  await page.getByRole("list", { name: /Events/ }).getByText(/shares/).first().waitFor();
  // The browser itself tells of requests that were denied.
  const others = complaints.filter((complaint) => !/status of 40[13]/.test(complaint));
  assert.deepEqual(others, []);
} finally {
  await browser.close();
}
