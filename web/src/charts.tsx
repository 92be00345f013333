// A volume over time, as the papers' figures show it: latency with its threshold, windows of hosts, throughput of VMs.

import { useMemo } from "preact/hooks";

import type { Volume } from "./api";
import { Chart, type Line } from "./chart";
import { colours } from "./colour";
import { number } from "./format";
import type { Live } from "./live";
import type { Theme } from "./theme";

interface Props {
  volume: Volume;
  live: Live;
  theme: Theme;
  seconds: number;
}

export function Charts({ volume, live, theme, seconds }: Props) {
  const { record, busiest } = live;
  const latency = useMemo<Line[]>(
    () => [
      { label: "latency", values: record.volume.latency_ms ?? [], colour: 0, heavy: true },
      { label: "of this host", values: record.volume.own_latency_ms ?? [], colour: 1 },
      { label: "threshold", values: record.volume.threshold_ms ?? [], colour: "limit", dashed: true },
    ],
    [record],
  );
  const windows = useMemo<Line[]>(() => {
    const of = colours(volume.hosts.map((host) => host.name));
    return volume.hosts.map((host) => ({
      label: host.name,
      values: (host.own ? record.volume.window : record.hosts[host.name]?.window) ?? [],
      colour: of.get(host.name) ?? 0,
      heavy: host.own,
    }));
  }, [record, volume.hosts]);
  const throughput = useMemo<Line[]>(() => {
    const of = colours(busiest);
    return busiest.map((key) => ({ label: key, values: record.disks[key]?.iops ?? [], colour: of.get(key) ?? 0 }));
  }, [record, busiest]);
  const common = { time: record.time, theme, seconds };
  return (
    <section class="charts" aria-label="Over time">
      <Chart
        {...common}
        title="Latency at the array"
        unit="ms"
        lines={latency}
        words={`${number(volume.latency_ms)} ms now, threshold ${number(volume.threshold.ms)} ms`}
      />
      <Chart
        {...common}
        title={`Windows of ${volume.hosts.length === 1 ? "the host" : `${volume.hosts.length} hosts`}`}
        unit="IOs"
        lines={windows}
        words={`${number(volume.window)} outstanding IOs allowed to this host now`}
      />
      <Chart
        {...common}
        title={busiest.length < volume.disks.length ? "Throughput of the busiest VMs" : "Throughput"}
        unit="IO/s"
        lines={throughput}
        words={`${number(volume.iops)} IO/s of this host now`}
      />
    </section>
  );
}
