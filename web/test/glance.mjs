// What one glance at the page of a real agent answers: node test/glance.mjs URL PHASE [WORDS]

import assert from "node:assert/strict";

import { accessible, fits, launch, open } from "./page.mjs";

const [url, phase, words] = process.argv.slice(2);
const browser = await launch();

/** Waits until an element of these words has this colour of the style sheet. */
const coloured = (page, selector, words, name) =>
  page.waitForFunction(
    ({ selector, source, name }) => {
      const probe = document.body.appendChild(document.createElement("i"));
      probe.style.color = `var(--${name})`;
      const wanted = getComputedStyle(probe).color;
      probe.remove();
      const words = new RegExp(source);
      return [...document.querySelectorAll(selector)].some((e) => words.test(e.textContent) && getComputedStyle(e).color === wanted);
    },
    { selector, source: words.source, name },
  );
const row = (page, name) => page.getByRole("region", { name: /^Hosts/ }).getByRole("row").filter({ hasText: name });

/** Distance of the dot from the mark of 100 %, as a part of the half scale, and that the mark is in the middle. */
const scale = (share) =>
  share.evaluate((e) => {
    const middle = (of) => {
      const { left, width } = e.querySelector(of).getBoundingClientRect();
      return left + width / 2;
    };
    const half = e.querySelector(".scale").getBoundingClientRect().width / 2;
    return [(middle("circle") - middle(".mark")) / half, (middle(".mark") - middle(".scale")) / half];
  });

const phases = {
  /** VMs of both hosts are held, and each has its share. */
  async held(page) {
    const words = /^At the threshold: \d+ of 60 ms\. 1 VM held back, and VMs on 1 other host; each has its share\.$/;
    await coloured(page, ".sentence", words, "warn");
    await coloured(page, "[role=status]", /^live$/, "good");
    for (const name of ["a", "b"]) {
      const share = row(page, new RegExp(`^${name}`)).locator(".share");
      await share.filter({ hasText: /^(8\d|9\d|10\d|11\d) %$/ }).waitFor();
      const [off, mark] = await scale(share);
      assert.ok(Math.abs(off) < 0.3 && Math.abs(mark) < 0.05, `dot ${off} from a mark ${mark} from the middle`);
    }
    assert.equal(await page.getByRole("link", { name: "b", exact: true }).getAttribute("href"), "http://b:9843/");
    assert.equal(await page.getByRole("link", { name: "a", exact: true }).count(), 0, "this host's own page");

    const tenant = page.getByRole("region", { name: "Tenants" }).getByRole("row").filter({ hasText: /^gold/ });
    await tenant.filter({ hasText: /iops 100000/ }).waitFor();

    await page.getByRole("button", { name: "batch" }).first().click();
    const dialog = page.getByRole("dialog", { name: "batch" });
    await dialog.getByText(/Share-bound: it wants \d+\.\d IOs at a time/).waitFor();
    await dialog.getByText(/held on this host: \d/).waitFor();
    await dialog.getByText(/host b: \d/).waitFor();
    await page.keyboard.press("Escape");

    await page.getByRole("link", { name: "Cluster" }).click();
    const cluster = page.getByRole("region", { name: "Cluster of array", exact: true });
    await cluster.getByText("2 of 2").waitFor();
    assert.equal(await cluster.getByRole("definition").nth(1).textContent(), "3,000");
    await cluster.locator(".sentence").filter({ hasText: /threshold: \d+ of 60 ms/ }).waitFor();
    await accessible(page, "cluster");
    await page.goBack();
    await page.getByRole("region", { name: "VMs of this host" }).waitFor();
  },
  /** A host without control takes more than its share: it is named first. */
  async unfair(page) {
    await coloured(page, ".sentence", /held back; not each has its share: b \d\d\d %/, "bad");
    await row(page, /^b/).getByText("no control").waitFor();
    const share = row(page, /^b/).locator(".share");
    await share.filter({ hasText: /^(1[3-9]|[2-9]\d)\d %$/ }).waitFor();
    const [off] = await scale(share);
    assert.ok(off > 0.25, `dot ${off}`);
  },
  /** A phone shows who is held and why without a move sideways. */
  async narrow(page) {
    const held = page.getByRole("list", { name: "Held back" }).getByText(/has \d+(\.\d+)?: its slice$/);
    const cell = page.getByRole("row").filter({ hasText: "batch" }).getByText("its slice");
    for (const why of [held, cell]) {
      await why.waitFor();
      const box = await why.boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= 390, JSON.stringify(box));
      const shown = await why.evaluate((e) => {
        const { left, right } = e.closest(".scroll, section").getBoundingClientRect();
        return e.getBoundingClientRect().left >= left && e.getBoundingClientRect().right <= right;
      });
      assert.ok(shown, "it is not behind the edge of the table");
    }
    assert.ok((await held.boundingBox()).y < 844, "on the first screen");
    await fits(page);
  },
  /** Above the threshold there are other words, in another colour. */
  async above(page) {
    await coloured(page, ".sentence", /^Above the threshold: /, "bad");
  },
  /** A host that said goodbye is grey, and no fault. */
  async left(page) {
    await row(page, /^b/).getByText("left", { exact: true }).waitFor();
    await coloured(page, "td span", /^left$/, "soft");
    await coloured(page, "[role=status]", /^live$/, "good");
  },
  /** A fault takes the green from "live", and says what it costs. */
  async fault(page) {
    await coloured(page, "[role=status]", /^live, with a fault$/, "soft");
    await coloured(page, ".sentence", new RegExp(words), "bad");
    await accessible(page, "fault");
  },
  /** After the last IO no latency is shown as that of now. */
  async idle(page) {
    await coloured(page, ".sentence", /^No IO at the array, threshold 60 ms\. Nobody is held back\.$/, "good");
  },
  /** Where the settings of a VM come from. */
  async policy(page) {
    await page.getByRole("button", { name: "vm1" }).first().click();
    const settings = page.getByRole("dialog", { name: "vm1" }).getByRole("region", { name: "Settings and policy" });
    await settings.getByText(/^Policy of revision \d+ in force; the last one is by \S/).waitFor();
    await settings.getByRole("listitem").filter({ hasText: "shares 4500 policy" }).waitFor();
    await settings.getByRole("listitem").filter({ hasText: "limit none state" }).waitFor();
  },
};

try {
  const viewport = phase === "narrow" ? { width: 390, height: 844 } : { width: 1280, height: 900 };
  const { page, complaints } = await open(browser, url, { viewport });
  await phases[phase](page);
  assert.deepEqual(complaints, []);
} finally {
  await browser.close();
}
