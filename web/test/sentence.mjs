// The sentence of the page, without a browser: node test/sentence.mjs

import assert from "node:assert/strict";
import test from "node:test";
import { fileURLToPath } from "node:url";

import { createServer } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const vite = await createServer({ root, configFile: false, appType: "custom", server: { middlewareMode: true, ws: false } });
const { faults, isFair, level, missed } = await vite.ssrLoadModule("/src/sentence.ts");
const { colours } = await vite.ssrLoadModule("/src/colour.ts");
test.after(() => vite.close());

const host = (name, more = {}) => ({
  name, own: name === "a", liveness: "live", age_s: 0, shares: 1000, iops: 500, latency_ms: 49, outstanding: 9, limited_by: "its slice", of_share: 1, ...more,
});
const disk = (name, more = {}) => ({
  key: name, name, state: "serving", fault: null, iops: 500, limited_by: "its slice", of_share: 1, ...more,
});
const volume = (more = {}) => ({
  name: "array", mode: "parda", fault: null, threshold: { ms: 50 }, latency_ms: 49, source: "cluster", steer: null,
  exchange: { fault: null }, hosts: [host("a")], disks: [disk("db", { limited_by: "its own depth", of_share: null }), disk("web"), disk("batch")], ...more,
});
const says = (more) => level(volume(more));

test("VMs that are held at the threshold have their shares", () => {
  assert.deepEqual(says({}), { tone: "held", text: "At the threshold: 49 of 50 ms. 2 VMs held back; each has its share." });
});

test("hosts whose VMs are held are counted, those that are not heard are not", () => {
  const hosts = [host("a"), host("b"), host("c", { liveness: "left" }), host("d", { limited_by: "its own depth" })];
  assert.match(says({ hosts }).text, /2 VMs held back, and VMs on 1 other host; each has its share\.$/);
  const { tone, text } = says({ hosts, disks: [] });
  assert.deepEqual([tone, text.slice(31)], ["held", "VMs on 1 other host held back; each has its share."]);
});

test("49 and 78 ms of 50 differ in words and in colour", () => {
  assert.equal(says({}).tone, "held");
  const { tone, text } = says({ latency_ms: 78 });
  assert.equal(tone, "fault");
  assert.match(text, /^Above the threshold: 78 of 50 ms\. /);
  assert.equal(says({ latency_ms: 78, mode: "observe" }).text, "Above the threshold: 78 of 50 ms. Nothing is held back: mode observe.");
});

test("where nobody is held all is good", () => {
  const { tone, text } = says({ latency_ms: 4.56, disks: [], hosts: [] });
  assert.deepEqual([tone, text], ["good", "Below the threshold: 4.6 of 50 ms. Nobody is held back."]);
});

test("the last latency of an idle array is none", () => {
  const idle = (name, more) => host(name, { latency_ms: null, outstanding: 0, limited_by: "its own depth", of_share: null, ...more });
  const of = (...hosts) => says({ latency_ms: 78, disks: [], hosts });
  assert.deepEqual(of(idle("a"), idle("b")), { tone: "good", text: "No IO at the array, threshold 50 ms. Nobody is held back." });
  assert.match(of(idle("a"), idle("b", { outstanding: 3 })).text, /^Above/, "an IO that takes long");
});

test("who has not its share is named, beyond the chance of few IOs", () => {
  const { tone, text } = says({ disks: [disk("web", { of_share: 0.3 }), disk("db", { iops: 9, of_share: 0.5 })], hosts: [host("a"), host("b", { of_share: 2.1 })] });
  assert.equal(tone, "fault");
  assert.match(text, /; not each has its share: b 210 %, web 30 %\.$/);
  assert.ok(isFair(0.5, 16) && !isFair(0.5, 1600));
});

test("without other hosts a share is that of this host's part", () => {
  assert.match(says({ source: "last-good", hosts: [host("a"), host("b", { liveness: "gone" })] }).text, /share of what this host has\.$/);
});

test("a host that hears nobody it should hear is not well, and those that do not hear it are named", () => {
  const silent = { fault: null, silence: "nobody hears this host: 127.0.0.3:7077 is in no peers", one_way: [] };
  const alone = { exchange: silent, source: "local", hosts: [host("a", { limited_by: null })] };
  const { tone, text } = says({ ...alone, latency_ms: 5, disks: [] });
  assert.equal(tone, "fault");
  assert.match(text, /Nobody is held back here; nothing is known of other hosts\.$/);
  assert.match(says(alone).text, /share of what this host has\.$/);
  const [{ what, costs, says: why }] = faults(volume(alone));
  assert.deepEqual([what, why], ["No other host is heard.", silent.silence]);
  assert.match(costs, /shares hold among its VMs, not across hosts/);
  const deaf = { fault: null, silence: null, one_way: ["host c sends from 127.0.0.3:7077"] };
  assert.deepEqual(faults(volume({ exchange: deaf })), [
    { what: "A host is heard that does not hear this one.", costs: "What they say does not count.", says: deaf.one_way[0] },
  ]);
});

test("a silent host is named with the shares that still count", () => {
  const hosts = [host("a"), host("b", { liveness: "stale", age_s: 9, shares: 3000 })];
  const [{ what, costs }] = faults(volume({ source: "last-good", hosts }));
  assert.equal(what, "b is silent for 9.0 s.");
  assert.match(costs, /^It may still load the array, and counts with the 3,000 shares that it had\./);
});

test("a name has one colour whatever the order of the hosts", () => {
  const names = ["kvm-01", "kvm-02", "kvm-03", "kvm-04", "kvm-05"];
  const one = colours(names);
  assert.deepEqual(colours(names.toReversed()), one);
  assert.equal(new Set(one.values()).size, names.length, "each its own while there are enough");
  assert.equal(colours(Array.from({ length: 30 }, (_, i) => `h${i}`)).size, 30);
});

test("a fault says what it costs", () => {
  assert.deepEqual(faults(volume()), []);
  const of = (more) => faults(volume(more)).map(({ what, costs }) => `${what} ${costs}`);
  assert.deepEqual(of({ exchange: { fault: "gone" }, source: "last-good", hosts: [host("b", { liveness: "stale", age_s: 9 })] }), [
    "The exchange fails. No IO waits for it. Hosts keep the parts that they had: changes of shares or load on other hosts do not count meanwhile.",
  ]);
  assert.match(of({ hosts: [host("b", { liveness: "stale", age_s: 9 })] })[0], /^b is silent for 9.0 s\. The hosts that are heard divide/);
  assert.deepEqual(of({ hosts: [host("b", { liveness: "gone", age_s: 7200 }), host("c", { liveness: "left", age_s: 9 })] }), []);
  assert.match(of({ disks: [disk("web", { state: "opening", fault: "no such file" })] })[0], /^web: not served\. Clients cannot connect/);
  assert.match(of({ fault: "panicked", steer: { device: "sda", fault: null, vms: [] } })[0], /^The volume does not run\. Its VMs go on/);
});

test("patterns without a VM and VMs without a pattern are named", () => {
  assert.deepEqual(missed({ vms: [] }), [], "of an older agent");
  const patterns_without_vm = [{ vm: "db", cgroup: "libvirt:db", why: "matches no cgroup" }];
  const vms_without_pattern = [{ cgroup: "qemu.slice/100.scope", name: "100", why: null }, { cgroup: "m/\\xff", name: null, why: "not UTF-8" }];
  assert.deepEqual(missed({ patterns_without_vm, vms_without_pattern }), [
    'VM db: "libvirt:db" matches no cgroup.',
    "Cgroup qemu.slice/100.scope (VM 100) has neither shares nor a limit: no pattern matches it.",
    "Cgroup m/\\xff has neither shares nor a limit: not UTF-8.",
  ]);
});
