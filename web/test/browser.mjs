// The page with 64 hosts and 1,000 VMs in Debian's Chromium: node test/browser.mjs
//
// Prints the numbers that it measures. What it asserts of time has room for a busy machine.

import assert from "node:assert/strict";

import { fleet } from "./fleet.mjs";
import { accessible, chartsDraw, fits, launch, open } from "./page.mjs";

/** Milliseconds between frames while the page is live. */
function frames(page, ms) {
  return page.evaluate(
    (ms) =>
      new Promise((resolve) => {
        const gaps = [];
        let last = performance.now();
        const end = last + ms;
        const frame = (now) => {
          gaps.push(now - last);
          last = now;
          if (now < end) requestAnimationFrame(frame);
          else resolve(gaps.toSorted((a, b) => a - b));
        };
        requestAnimationFrame(frame);
      }),
    ms,
  );
}

const at = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];

const served = await fleet();
const browser = await launch();
try {
  for (const colorScheme of ["light", "dark"]) {
    for (const viewport of [{ width: 390, height: 844 }, { width: 1280, height: 900 }]) {
      const where = `${viewport.width} px, ${colorScheme}`;
      const { page, complaints, close } = await open(browser, served.url, { viewport, colorScheme });
      await chartsDraw(page, 3);
      await fits(page);
      await accessible(page, where);
      await page.getByRole("button", { name: /^vm-/ }).first().click();
      await chartsDraw(page, 5);
      await accessible(page, `${where}, dialog`);
      await page.keyboard.press("Escape");
      assert.deepEqual(complaints, [], where);
      await close();
      console.log(`ok: ${where}`);
    }
  }

  const { page, complaints, close } = await open(browser, served.url);
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
  console.log(`first contentful paint: ${paint.toFixed(0)} ms`);
  assert.ok(paint < 60_000);

  await page.getByText("with about 40 IOs outstanding, 40 % of all").waitFor();
  await page.getByText("pool array-a").waitFor();

  // Without a mouse: find a VM, open it, leave it, and be where one was.
  await page.keyboard.press("/");
  await page.keyboard.type("vm-0042");
  const table = page.getByRole("region", { name: "VMs of this host" });
  const row = table.getByRole("button", { name: "vm-0042" });
  await row.waitFor();
  assert.equal(await table.getByRole("button", { name: /^vm-/ }).count(), 1);
  for (let i = 0; i < 30 && !(await row.evaluate((e) => e === document.activeElement)); i += 1) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "vm-0042" }).waitFor();
  await page.getByLabel("Shares").focus();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  assert.ok(await row.evaluate((e) => e === document.activeElement), "the focus is back on the row");
  await page.getByLabel("Filter by name").fill("");

  // Sorting and scrolling reach the last of a thousand.
  await page.getByRole("button", { name: "VM", exact: true }).click();
  await table.evaluate((e) => e.scrollTo(0, e.scrollHeight));
  await table.getByRole("button", { name: "vm-1000" }).waitFor();
  assert.ok((await page.locator("tbody tr").count()) < 200, "rows out of view are not in the page");

  // The limit of VMs of a steered device, by the name of what they have together.
  await page.getByRole("combobox", { name: "Volume" }).selectOption("lun");
  await table.getByRole("button", { name: "batch/one" }).click();
  const vm = page.getByRole("dialog", { name: "batch/one" });
  await vm.getByLabel("Limit").fill("iops 500, bandwidth_writes 4MiB");
  await vm.getByRole("button", { name: "Change" }).click();
  await vm.getByText("limit iops 500, bandwidth_writes 4MiB in force").waitFor();
  await accessible(page, "a steered VM");
  await page.keyboard.press("Escape");
  await table.getByRole("row").filter({ hasText: "batch/two" }).getByText("iops 500").waitFor();
  await page.getByRole("combobox", { name: "Volume" }).selectOption("san");

  const gaps = await frames(page, 10_000);
  const [p50, p95, p99, most] = [0.5, 0.95, 0.99, 1].map((part) => at(gaps, part).toFixed(1));
  console.log(`frames over 10 s with 64 hosts and 1,000 VMs: p50 ${p50} ms, p95 ${p95} ms, p99 ${p99} ms, longest ${most} ms`);
  // A page that hangs has a frame in many seconds. The number of a quiet machine is what is printed.
  assert.ok(at(gaps, 0.5) < 1000, "the page stays responsive");
  assert.deepEqual(complaints, []);
  await close();
} finally {
  await browser.close();
  served.close();
}
