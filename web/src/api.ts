// The agent's HTTP API, as docs/api.md describes it.

import type { Changed, Events, History, State } from "./answers";

export type { Changed, Disk, Event, Events, Exchange, History, Host, Outsider, State, Steer, SteeredVm, Tenant, Volume } from "./answers";

/** Keys and values of a limit, as the configuration has them. */
export type LimitSetting = Record<string, number | string>;

/** A value for each second, null where the agent did not know it. */
export type Column = (number | null)[];
export type Columns = Record<string, Column>;

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

export const events = (after: number) => ask<Events>(`events?after=${after}`);

export type Change = Record<string, unknown>;

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
