// Means over some seconds of the values that words and colours rest on: a single second of few IOs is chance.

import type { State } from "./api";

/** Part of a value that the latest answer makes up. */
const LATEST = 0.25;

/** Answers further apart than this, in milliseconds, have nothing to do with one another. */
const APART_MS = 5000;

const blend = (before: number | null | undefined, now: number | null) =>
  before == null || now == null ? now : before + LATEST * (now - before);

/** The state, with latencies and parts of shares blended with those of the answer before. */
export function steady(now: State, last: State | null): State {
  if (!last || now.now_ms - last.now_ms > APART_MS) return now;
  const volumes = now.volumes.map((volume) => {
    const before = last.volumes.find(({ name }) => name === volume.name);
    if (!before) return volume;
    const hosts = new Map(before.hosts.map((host) => [host.name, host.of_share]));
    const disks = new Map(before.disks.map((disk) => [disk.key, disk.of_share]));
    return {
      ...volume,
      latency_ms: blend(before.latency_ms, volume.latency_ms),
      hosts: volume.hosts.map((host) => ({ ...host, of_share: blend(hosts.get(host.name), host.of_share) })),
      disks: volume.disks.map((disk) => ({ ...disk, of_share: blend(disks.get(disk.key), disk.of_share) })),
    };
  });
  return { ...now, volumes };
}
