// An agent's API as a large cluster would fill it: 64 hosts and 1,000 VMs. It serves the built page too. The numbers are made up: it shows
// how the page bears their amount, nothing else. The page beside real agents is in crates/cli/tests/stories/dashboard.rs.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";

const page = new URL("../../crates/http/page/", import.meta.url);
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css" };

/** A number between 0 and 1 that is the same for the same words. */
function drawn(...words) {
  let h = 2166136261;
  for (const c of words.join("/")) h = Math.imul(h ^ c.charCodeAt(0), 16777619);
  h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
  return ((h ^ (h >>> 13)) >>> 0) / 2 ** 32;
}

const wave = (name, second, mean) =>
  mean * (1 + 0.2 * Math.sin(second / 17 + 6 * drawn(name)) + 0.1 * (drawn(name, second) - 0.5));

export function fleet({ hosts = 64, vms = 1000 } = {}) {
  const hostNames = Array.from({ length: hosts }, (_, i) => `kvm-${String(i + 1).padStart(2, "0")}`);
  const vmNames = Array.from({ length: vms }, (_, i) => `vm-${String(i + 1).padStart(4, "0")}`);
  const shares = Object.fromEntries(vmNames.map((name) => [name, [500, 1000, 2000][Math.floor(3 * drawn(name))]]));

  const disk = (name, now) => {
    const mean = 2 + 400 * drawn(name, "load") ** 6;
    const waiting = mean > 50 ? 0.4 * drawn(name, "held") : 0;
    return {
      key: name, name, listen: "unix:/run/parda/san.sock", state: "serving", fault: null, shares: shares[name], shares_from: "configuration",
      limits: {}, latency_target_ms: null, iops: wave(name, now, mean), bytes_per_s: 8192 * wave(name, now, mean), reads_per_s: mean, writes_per_s: 0,
      device_ms: wave("device", now, 28), held_ms: 40 * waiting, device_p99_ms: 80, outstanding: mean / 40, waiting, slice: 4 * drawn(name),
      errors: 0, limited_by: waiting > 0.05 ? "its slice" : "its own depth", entitled_iops: mean, of_share: waiting > 0.05 ? 0.9 + 0.2 * drawn(name) : null,
      settings: { shares: shares[name] }, settings_from: { shares: "configuration" },
    };
  };
  const host = (name, i, now) => ({
    name, own: i === 0, liveness: i === 7 ? "stale" : i === 8 ? "left" : "live", age_s: 4 * drawn(name, now), window: wave(name, now, 8 + 24 * drawn(name)),
    shares: 4000, active_shares: 3900, latency_ms: wave(name, now, 29), iops: wave(name, now, 700), bytes_per_s: 6e6, outstanding: wave(name, now, 12),
    limited_by: "its slice", of_share: i === 7 || i === 8 ? null : 0.9 + 0.2 * drawn(name),
  });
  const steered = ["erp", "batch/one", "batch/two"].map((name) => ({
    key: name, name, cgroup: `/${name}`, shares: 1000, shares_from: "default", settings: {}, settings_from: {}, limited_by: null, iops: 160, bytes_per_s: 1e6, pending: 4,
  }));
  const state = () => {
    const now_ms = Date.now();
    const now = Math.floor(now_ms / 1000);
    return {
      host: hostNames[0], version: "0.1.0", pid: 1, uptime_s: 7260, now_ms, role: "write", policy: null, pages: "http://{host}:9843/",
      volumes: [{
        name: "san", pool: "array-a", mode: "parda", fault: null, threshold: { ms: 30, from: "configuration", objective_of: null },
        latency_ms: wave("latency", now, 29.6), own_latency_ms: wave("own", now, 29), source: "cluster", window: wave(hostNames[0], now, 20), window_max: 64,
        outsider: {
          outstanding: 40, part: 0.4, latency_ms: 41, usual_ms: 29, periods: 12,
          factor: 1.4, evidence: 6, compared: 9,
        },
        outstanding: 18.2, held: 41, beta: 1, shares: 4000, active_shares: 3900, iops: wave("all", now, 6200), bytes_per_s: 51e6,
        exchange: { place: "/mnt/san/parda.exchange", fault: null, period_s: 4, slowed: null },
        hosts: hostNames.map((name, i) => host(name, i, now)), disks: vmNames.map((name) => disk(name, now)), steer: null,
      }, {
        name: "lun", pool: null, mode: "parda", fault: null, threshold: { ms: 30, from: "configuration", objective_of: null }, latency_ms: 29, own_latency_ms: 29,
        source: "cluster", window: 8, window_max: 64, outsider: null, outstanding: 8, held: null, shares: 3000, iops: 500, bytes_per_s: 4e6, exchange: null,
        hosts: [host(hostNames[0], 0, now)], disks: [], steer: { device: "/dev/mapper/lun", fault: null, depth: 8, vms: steered },
      }],
    };
  };
  const history = (query) => {
    const last = Math.floor(Date.now() / 1000);
    const first = Math.max(Math.floor(Number(query.get("since_ms")) / 1000) + 1, last - 3600);
    const seconds = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
    const column = (name, mean) => seconds.map((s) => wave(name, s, mean));
    const both = (names, columns) => Object.fromEntries(names.map((name) => [name, columns(name)]));
    return {
      step_ms: 1000, start_ms: first * 1000,
      volume: { window: column(hostNames[0], 20), latency_ms: column("latency", 29.6), own_latency_ms: column("own", 29), threshold_ms: seconds.map(() => 30), iops: column("all", 6200) },
      disks: both(query.getAll("disk"), (name) => ({ iops: column(name, 2 + 400 * drawn(name, "load") ** 6), device_ms: column("device", 28), held_ms: column(name, 9), outstanding: column(name, 4), slice: column("s", 5) })),
      hosts: both(query.getAll("host"), (name) => ({ window: column(name, 8 + 24 * drawn(name)) })),
    };
  };
  const events = [
    { id: 1, at_ms: Date.now() - 60_000, severity: "info", volume: "san", disk: null, host: "kvm-07", kind: "host_appeared", message: "the host is heard" },
    { id: 2, at_ms: Date.now() - 20_000, severity: "warning", volume: "san", disk: null, host: "kvm-08", kind: "host_silent", message: "nothing new for 12 s" },
  ];

  const server = createServer(async (request, response) => {
    const url = new URL(request.url, "http://fleet");
    const json = (value, status = 200) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    if (url.pathname === "/api/v1/state") return json(state());
    if (url.pathname === "/api/v1/history") return json(history(url.searchParams));
    if (url.pathname === "/api/v1/events") return json({ started_ms: 1, events: events.filter((e) => e.id > Number(url.searchParams.get("after"))), last_id: 2, lost: 0 });
    const changed = /^\/api\/v1\/volumes\/lun\/disks\/(\w+)$/.exec(url.pathname);
    if (changed && request.method === "PATCH") {
      const { keep: _, ...settings } = JSON.parse(await new Response(request).text());
      for (const vm of steered.filter((vm) => vm.name.split("/")[0] === changed[1])) Object.assign(vm.settings, settings);
      return json({ settings: Object.entries(settings).map(([setting, in_force]) => ({ setting, in_force, took_effect: true })) });
    }
    const name = url.pathname === "/" ? "index.html" : url.pathname.slice(1);
    try {
      const body = await readFile(new URL(name, page));
      response.writeHead(200, { "content-type": TYPES[name.split(".").at(-1)], "content-security-policy": "default-src 'self'; img-src data:" });
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() }));
  });
}
