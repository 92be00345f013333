// The agent's HTTP API, as docs/api.md describes it.

export interface Threshold {
  ms: number;
  from: string;
  objective_of: string | null;
}

export interface Exchange {
  place: string;
  fault: string | null;
  /** Reason why no other host is heard, where others are expected. Of an older agent none. */
  silence?: string | null;
  /** Hosts that are heard and do not hear this one, a sentence each. Of an older agent none. */
  one_way?: string[];
  period_s: number | null;
  slowed: string | null;
}

export interface Host {
  name: string;
  own: boolean;
  liveness: string;
  /** Why what it says is not believed. */
  doubt?: string | null;
  ignored?: boolean;
  age_s: number | null;
  window: number | null;
  shares: number | null;
  latency_ms: number | null;
  iops: number | null;
  bytes_per_s: number | null;
  outstanding: number | null;
  active_shares: number | null;
  limited_by: string | null;
  of_share: number | null;
}

/** Keys and values of a limit, as the configuration has them. */
export type Limit = Record<string, number | string>;

/** Settings of a disk, a VM or a tenant by key, as the configuration has them. */
export interface Settings {
  [key: string]: unknown;
  shares?: number;
  limit?: Limit;
  reservation?: number;
}

export interface Disk {
  /** The name, or name@listen where two disks have one name. */
  key: string;
  name: string;
  listen: string;
  state: string;
  fault: string | null;
  shares: number;
  shares_from: string;
  latency_target_ms: number | null;
  iops: number | null;
  bytes_per_s: number | null;
  device_ms: number | null;
  held_ms: number | null;
  outstanding: number | null;
  waiting: number | null;
  slice: number | null;
  errors: number;
  guest_faults: number;
  client_faults: number;
  limited_by: string | null;
  of_share: number | null;
  /** Values in force, and where they come from. */
  settings: Settings;
  settings_from: Record<string, string>;
}

export interface SteeredVm {
  key: string;
  /** Of VMs that have their settings together NAME/OWN: NAME is that of the settings. */
  name: string;
  shares: number;
  iops: number | null;
  bytes_per_s: number | null;
  pending: number | null;
  limited_by: string | null;
  settings: Settings;
  settings_from: Record<string, string>;
}

/** Load on the array that is not under control. */
export interface Outsider {
  /** Of an older agent none. */
  state?: "slower" | "outsider" | "below-knee";
  outstanding: number;
  part: number;
  latency_ms: number;
  usual_ms: number;
  periods: number;
  factor: number;
}

export interface Tenant {
  name: string;
  settings: Settings;
  settings_from: Record<string, string>;
  /** On all hosts that are heard. */
  iops: number;
  own_iops: number;
  limit_part: number | null;
  short: boolean;
}

export interface Volume {
  name: string;
  pool: string | null;
  mode: string;
  fault: string | null;
  threshold: Threshold;
  latency_ms: number | null;
  own_latency_ms: number | null;
  source: string;
  window: number | null;
  window_max: number | null;
  outstanding: number | null;
  outsider: Outsider | null;
  /** Throughput without the threshold, as a factor on the present one, and its latency. Of an older agent none. */
  threshold_cost?: { latency_ms: number; factor: number } | null;
  held: number | null;
  shares: number;
  iops: number | null;
  bytes_per_s: number | null;
  exchange: Exchange | null;
  hosts: Host[];
  /** Of an older agent none. */
  tenants?: Tenant[];
  disks: Disk[];
  steer: Steer | null;
}

/** A device that VMs open themselves. */
export interface Steer {
  device: string;
  fault: string | null;
  depth: number | null;
  vms: SteeredVm[];
  /** Of an older agent none, as the next. */
  patterns_without_vm?: { vm: string; cgroup: string; why: string }[];
  vms_without_pattern?: { cgroup: string; name: string | null; why: string | null }[];
}

/** The policy in etcd, as the host read it last. */
export interface Policy {
  revision: number;
  by: string | null;
  fault: string | null;
  volumes: { name: string; in_force: number | null; fault: string | null }[];
}

export interface State {
  host: string;
  version: string;
  uptime_s: number;
  now_ms: number;
  role: string;
  policy: Policy | null;
  /** Reason why the configuration that was read last is not in force. Of an older agent none. */
  reload_refused?: string | null;
  /** URL of the dashboards of all hosts, with `{host}` for the host's name. */
  pages: string | null;
  volumes: Volume[];
}

/** A value for each second, null where the agent did not know it. */
export type Column = (number | null)[];
export type Columns = Record<string, Column>;

export interface History {
  step_ms: number;
  start_ms: number;
  volume: Columns;
  disks: Record<string, Columns>;
  hosts: Record<string, Columns>;
}

export interface Event {
  id: number;
  at_ms: number;
  severity: "info" | "warning" | "error";
  volume: string | null;
  disk: string | null;
  host: string | null;
  kind: string;
  message: string;
}

/** An answer that is an error, with the agent's own words. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const TOKEN = "parda-token";

/** The token of this tab. It is forgotten when the tab is closed. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value: string) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

const PATIENCE_MS = 10_000;

async function ask<T>(path: string, init: RequestInit = {}): Promise<T> {
  const headers = new Headers(init.headers);
  const secret = token.get();
  if (secret) headers.set("authorization", `Bearer ${secret}`);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const response = await fetch(`api/v1/${path}`, { ...init, headers, signal, cache: "no-store" });
  if (!response.ok) throw new Refused(response.status, await reason(response));
  return (await response.json()) as T;
}

async function reason(response: Response): Promise<string> {
  const text = await response.text();
  try {
    const body = JSON.parse(text) as { error?: string; message?: string };
    return body.error ?? body.message ?? text;
  } catch {
    return text || response.statusText;
  }
}

export const state = () => ask<State>("state");

export interface Asked {
  volume: string;
  disks: string[];
  hosts: string[];
  /** Seconds after this time, in Unix milliseconds. */
  since_ms: number;
}

export function history({ volume, disks, hosts, since_ms }: Asked): Promise<History> {
  const query = new URLSearchParams({ volume, since_ms: String(since_ms) });
  for (const disk of disks) query.append("disk", disk);
  for (const host of hosts) query.append("host", host);
  return ask<History>(`history?${query}`);
}

export interface Events {
  /** When the agent started, in Unix milliseconds. Ids begin at 1 with each start. */
  started_ms: number;
  events: Event[];
  last_id: number;
}

export const events = (after: number) => ask<Events>(`events?after=${after}`);

export type Change = Record<string, unknown>;

export interface Changed {
  settings: {
    setting: string;
    in_force: unknown;
    took_effect: boolean;
  }[];
}

/** The path of a volume, or of a disk or a tenant of it. */
export const place = (volume: string, of?: "disks" | "tenants", name = "") =>
  `volumes/${encodeURIComponent(volume)}${of ? `/${of}/${encodeURIComponent(name)}` : ""}`;

const JSON_BODY = { "content-type": "application/json" };

/** Changes settings at a place, and tells what each request changed. One that is empty is given back to the configuration. */
export async function change(at: string, { keep, ...wanted }: Change, done: (settings: Changed["settings"]) => void): Promise<void> {
  const send = async (path: string, init: RequestInit) => done((await ask<Changed>(path, { ...init, headers: JSON_BODY })).settings);
  for (const [key, value] of Object.entries(wanted)) {
    if (value !== "") continue;
    delete wanted[key];
    await send(`${at}/overrides/${key}`, { method: "DELETE" });
  }
  if (Object.keys(wanted).length > 0) {
    const body = JSON.stringify(keep == null ? wanted : { ...wanted, keep });
    await send(at, { method: "PATCH", body });
  }
}
