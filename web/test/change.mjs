// Changes the shares of a VM, and a tenant, on the page of a real agent: node test/change.mjs URL DISK SHARES TOKEN

import assert from "node:assert/strict";

import { accessible, chartsDraw, launch, open } from "./page.mjs";

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

  // A tenant: what is no limit is refused, an emptied field is the configuration's again.
  await page.getByRole("button", { name: "gold", exact: true }).click();
  const tenant = page.getByRole("dialog", { name: "Tenant gold" });
  const change = async (fields, said) => {
    // A form that took in the state between filling and clicking has nothing to change: on a busy machine it is filled again.
    for (let tries = 1; ; tries++) {
      for (const [label, text] of Object.entries(fields)) await tenant.getByLabel(label).fill(text);
      await tenant.getByRole("button", { name: "Change" }).click();
      const status = tenant.getByRole("status").filter({ hasText: said });
      const told = await status.waitFor({ timeout: 20_000 }).then(() => true, () => false);
      if (told) return;
      const now = await tenant.getByRole("status").allTextContents();
      assert.ok(tries < 5, `${said} is not told, but ${JSON.stringify(now)}`);
    }
  };
  await change({ Limit: "many" }, /^limit = "many"/);
  await change({ Limit: "iops 30000, bandwidth 40MiB", Shares: "2000" }, /shares 2,?000 in force/);
  await tenant.getByRole("listitem").filter({ hasText: /limit iops 30000, bandwidth 40/ }).waitFor();
  // Of two changes the first is done and the second refused: both are told, and the form goes on from there.
  await change({ Limit: "", Shares: "1.5" }, /^limit iops 90000 in force, shares = 1.5: must be/);
  await change({ Limit: "iops 1, iops 2", Shares: "2000" }, /^limit = "iops 1, iops 2"/);
  // "none" takes out what the configuration has.
  await change({ Limit: "none" }, /^limit not set in force$/);
  await change({ Limit: "iops 80000", Reservation: "5.5" }, /reservation 5.5 in force/);
  await change({ Reservation: "none" }, /^reservation not set in force$/);
  await change({ Reservation: "5.5" }, /^reservation 5.5 in force$/);
  await change({ Shares: "2001" }, /^shares 2,?001 in force$/);
  await accessible(page, "a tenant");
  await page.keyboard.press("Escape");
  await page.getByRole("region", { name: "Tenants" }).getByText("iops 80000").waitFor();
  // The browser itself tells of requests that were denied.
  const others = complaints.filter((complaint) => !/status of 40[013]/.test(complaint));
  assert.deepEqual(others, []);
} finally {
  await browser.close();
}
