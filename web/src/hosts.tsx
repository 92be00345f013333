// The hosts of a volume, as the exchange shows them.

import type { Host, Volume } from "./api";
import { duration, number } from "./format";
import { type ColumnOf, Table } from "./table";

const columns: ColumnOf<Host>[] = [
  {
    key: "name",
    title: "Host",
    help: "Name of the host",
    value: (h) => h.name,
    cell: (h) => (
      <>
        {h.name} {h.own && <span class="tag">this host</span>}
      </>
    ),
  },
  {
    key: "liveness",
    title: "State",
    help: "Whether the host is heard",
    value: (h) => h.liveness,
    cell: (h) => <span class={h.own || h.liveness === "live" ? "good" : "bad"}>{h.own ? "here" : h.liveness}</span>,
  },
  {
    key: "age",
    title: "Heard",
    help: "Time since something new was heard from the host",
    value: (h) => h.age_s,
    cell: (h) => (h.own ? "" : duration(h.age_s)),
    numeric: true,
  },
  {
    key: "window",
    title: "Window",
    help: "Outstanding IOs that the law allows the host",
    value: (h) => h.window,
    cell: (h) => number(h.window),
    numeric: true,
  },
  {
    key: "outstanding",
    title: "Outstanding",
    help: "Mean outstanding IOs at the array in the last period",
    value: (h) => h.outstanding,
    cell: (h) => number(h.outstanding),
    numeric: true,
    wide: true,
  },
  {
    key: "shares",
    title: "Shares",
    help: "Sum of the shares of the host's VMs that are active",
    value: (h) => h.shares,
    cell: (h) => number(h.shares),
    numeric: true,
    wide: true,
  },
  {
    key: "latency",
    title: "Latency, ms",
    help: "Mean time of the host's IOs at the array, in milliseconds",
    value: (h) => h.latency_ms,
    cell: (h) => number(h.latency_ms),
    numeric: true,
  },
  {
    key: "iops",
    title: "IO/s",
    help: "IOs a second that the host completes",
    value: (h) => h.iops,
    cell: (h) => number(h.iops),
    numeric: true,
  },
];

export function Hosts({ volume }: { volume: Volume }) {
  return (
    <section class="panel">
      <h2>Hosts</h2>
      <Table
        label="Hosts of the volume"
        columns={columns}
        rows={volume.hosts}
        id={(host) => host.name}
        first={{ key: "name", descending: false }}
        none="No host is known."
      />
      {volume.hosts.length > 1 && (
        <p class="soft">Hosts exchange sums. The VMs of another host are on the page of that host's own agent.</p>
      )}
    </section>
  );
}
