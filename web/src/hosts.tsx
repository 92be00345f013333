// The hosts of a volume, as the exchange shows them.

import { useMemo } from "preact/hooks";

import type { Host, Volume } from "./api";
import { duration, mib, number } from "./format";
import { isHeard } from "./sentence";
import { OfShare } from "./share";
import { type ColumnOf, Table } from "./table";

/** Names that may stand in a URL: they come from the exchange, where a host may write what it likes. */
const PLAIN = /^[\w.-]+$/;

/** Address of a host's dashboard. A member of a pool is called HOST/VOLUME. */
function pageOf(host: Host, pages: string | null): string | null {
  const name = host.name.split("/")[0] ?? "";
  return pages && !host.own && PLAIN.test(name) ? pages.replaceAll("{host}", name) : null;
}

function Name({ host, pages }: { host: Host; pages: string | null }) {
  const page = pageOf(host, pages);
  return (
    <>
      {page ? <a href={page}>{host.name}</a> : host.name} {host.own && <span class="tag">this host</span>}
      {isHeard(host) && host.window == null && <span class="tag">no control</span>}
    </>
  );
}

const state = (h: Host) => (h.doubt ? "bad" : h.ignored ? "soft" : h.own ? "good" : h.liveness === "live" ? "good" : h.liveness === "left" || h.liveness === "unproven" ? "soft" : "bad");

/** What the host has of its share, or why there is no number. */
function Share({ host }: { host: Host }) {
  if (host.of_share != null) return <OfShare of_share={host.of_share} a_second={host.iops} />;
  const why = !isHeard(host)
    ? "–"
    : host.limited_by === "window_max"
      ? "at window_max"
      : host.limited_by === "its slice"
        ? "held back"
        : host.limited_by === "its own depth"
          ? "all it wants"
          : "–";
  return <span class="soft">{why}</span>;
}

const columnsOf = (pages: string | null): ColumnOf<Host>[] => [
  { key: "name", title: "Host", help: "Name of the host", value: (h) => h.name, cell: (h) => <Name host={h} pages={pages} /> },
  {
    key: "liveness",
    title: "State",
    help: "Whether the host is heard; left: it said goodbye",
    value: (h) => h.liveness,
    cell: (h) => <span class={state(h)}>{h.own ? "here" : h.ignored ? "ignored" : h.doubt ? "not believed" : h.liveness}</span>,
  },
  {
    key: "share",
    title: "Of its share",
    help: "What its VMs that want more have of outstanding IOs (or of throughput, if shares divide that), of what their shares give; the mark is 100 %",
    value: (h) => h.of_share,
    cell: (h) => <Share host={h} />,
    numeric: true,
  },
  {
    key: "age",
    title: "Heard",
    help: "Time since something new was heard from the host",
    value: (h) => h.age_s,
    cell: (h) => (h.own ? "" : duration(h.age_s)),
    numeric: true,
    wide: true,
  },
  {
    key: "window",
    title: "Window",
    help: "Outstanding IOs that the law allows the host",
    value: (h) => h.window,
    cell: (h) => number(h.window),
    numeric: true,
    wide: true,
  },
  {
    key: "outstanding",
    title: "Outst.",
    help: "Mean outstanding IOs at the array in the last period",
    value: (h) => h.outstanding,
    cell: (h) => number(h.outstanding),
    numeric: true,
    wide: true,
  },
  {
    key: "shares",
    title: "Shares",
    help: "Sum of the shares of the host's VMs",
    value: (h) => h.shares,
    cell: (h) => number(h.shares),
    numeric: true,
    wide: true,
  },
  {
    key: "active",
    title: "In use",
    help: "The same, less for VMs that use less than their slice",
    value: (h) => h.active_shares,
    cell: (h) => number(h.active_shares),
    numeric: true,
    wide: true,
  },
  {
    key: "latency",
    title: "Array, ms",
    help: "Mean time of the host's IOs at the array, in milliseconds",
    value: (h) => h.latency_ms,
    cell: (h) => number(h.latency_ms),
    numeric: true,
    wide: true,
  },
  { key: "iops", title: "IO/s", help: "IOs a second that the host completes", value: (h) => h.iops, cell: (h) => number(h.iops), numeric: true },
  { key: "bytes", title: "MiB/s", help: "MiB a second", value: (h) => h.bytes_per_s, cell: (h) => mib(h.bytes_per_s), numeric: true, wide: true },
];

export function Hosts({ volume, pages }: { volume: Volume; pages: string | null }) {
  const columns = useMemo(() => columnsOf(pages), [pages]);
  return (
    <>
      <Table
        label={`Hosts of the volume ${volume.name}`}
        columns={columns}
        rows={volume.hosts}
        id={(host) => host.name}
        first={{ key: "name", descending: false }}
        dim={(host) => !isHeard(host)}
        none="No host is known."
      />
      {volume.hosts.length > 1 && <p class="soft">Hosts exchange sums: the VMs of another host are on the page of that host.</p>}
    </>
  );
}
