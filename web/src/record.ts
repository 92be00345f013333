// The seconds that the page has seen, of one volume.

import type { Column, Columns, History } from "./api";

/** Columns over one time axis. All have the same length. */
export interface Record_ {
  /** Unix seconds. */
  time: number[];
  volume: Columns;
  disks: Record<string, Columns>;
  hosts: Record<string, Columns>;
}

export const empty = (): Record_ => ({ time: [], volume: {}, disks: {}, hosts: {} });

/** The most seconds that are kept: what the agent itself keeps. */
const MOST = 3600;

/** The record with newer seconds at its end. Seconds that stand in both are taken from the newer answer. */
export function extend(record: Record_, answer: History, seconds = MOST): Record_ {
  const step = answer.step_ms / 1000;
  const start = answer.start_ms / 1000;
  const added = lengthOf(answer);
  if (added === 0) return record;
  const kept = lowerBound(record.time, start);
  const from = Math.max(0, kept + added - seconds);
  const time = record.time.slice(0, kept);
  for (let i = 0; i < added; i += 1) time.push(start + i * step);
  const length = time.length;
  const join = (old: Columns | undefined, now: Columns | undefined): Columns => {
    const joined: Columns = {};
    for (const name of new Set([...Object.keys(old ?? {}), ...Object.keys(now ?? {})])) {
      joined[name] = joinColumn(old?.[name], now?.[name], kept, length, from);
    }
    return joined;
  };
  const joinAll = (old: Record<string, Columns>, now: Record<string, Columns>) => {
    const joined: Record<string, Columns> = {};
    for (const name of new Set([...Object.keys(old), ...Object.keys(now)])) {
      joined[name] = join(old[name], now[name]);
    }
    return joined;
  };
  return {
    time: time.slice(from),
    volume: join(record.volume, answer.volume),
    disks: joinAll(record.disks, answer.disks),
    hosts: joinAll(record.hosts, answer.hosts),
  };
}

function joinColumn(
  old: Column | undefined,
  now: Column | undefined,
  kept: number,
  length: number,
  from: number,
): Column {
  const joined: Column = (old ?? []).slice(from, kept);
  while (joined.length < kept - from) joined.push(null);
  for (const value of (now ?? []).slice(Math.max(0, from - kept))) joined.push(value);
  while (joined.length < length - from) joined.push(null);
  return joined;
}

function lengthOf(answer: History): number {
  const columns = [answer.volume, ...Object.values(answer.hosts), ...Object.values(answer.disks)];
  return Math.max(0, ...columns.flatMap((c) => Object.values(c).map((column) => column.length)));
}

/** Index of the first time that is not before `at`. */
function lowerBound(times: number[], at: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) < at) low = middle + 1;
    else high = middle;
  }
  return low;
}
