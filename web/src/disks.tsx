// The VMs of this host: what each gets, and what limits it.

import { useMemo, useRef, useState } from "preact/hooks";
import { useEffect } from "preact/hooks";

import type { Disk, Volume } from "./api";
import { mib, number } from "./format";
import { type ColumnOf, Table } from "./table";

interface Props {
  volume: Volume;
  open: (disk: Disk) => void;
}

export function Disks({ volume, open }: Props) {
  const [filter, setFilter] = useState("");
  const [limited, setLimited] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      const typing = event.target instanceof HTMLInputElement || document.querySelector("dialog[open]");
      if (event.key !== "/" || typing) return;
      event.preventDefault();
      field.current?.focus();
    };
    document.addEventListener("keydown", key);
    return () => document.removeEventListener("keydown", key);
  }, []);

  const columns = useMemo(() => columnsOf(open), [open]);
  const wanted = filter.trim().toLowerCase();
  const rows = volume.disks.filter(
    (disk) => disk.name.toLowerCase().includes(wanted) && (!limited || isLimited(disk)),
  );
  return (
    <section class="panel">
      <div class="bar">
        <h2>
          VMs of this host <span class="soft">{rows.length === volume.disks.length ? rows.length : `${rows.length} of ${volume.disks.length}`}</span>
        </h2>
        <label>
          <input type="checkbox" checked={limited} onChange={(e) => setLimited(e.currentTarget.checked)} /> held back
        </label>
        <input
          ref={field}
          type="search"
          placeholder="Filter by name ( / )"
          aria-label="Filter by name"
          value={filter}
          onInput={(e) => setFilter(e.currentTarget.value)}
        />
      </div>
      <Table
        label="VMs of this host"
        columns={columns}
        rows={rows}
        id={(disk) => disk.key}
        first={{ key: "iops", descending: true }}
        none={volume.disks.length === 0 ? "This volume serves no disk." : "No VM has this name."}
      />
    </section>
  );
}

/** Held back by what parda can change: shares and bounds. */
const isLimited = (disk: Disk) => (disk.waiting ?? 0) >= 0.05;

const columnsOf = (open: (disk: Disk) => void): ColumnOf<Disk>[] => [
  {
    key: "name",
    title: "VM",
    help: "Name of the disk",
    value: (d) => d.name,
    cell: (d) => (
      <>
        <button type="button" class="link" onClick={() => open(d)}>
          {d.name}
        </button>{" "}
        {d.fault ? <span class="bad" title={d.fault}>{d.state}</span> : d.state !== "serving" && <span class="warn">{d.state}</span>}
      </>
    ),
  },
  {
    key: "shares",
    title: "Shares",
    help: "Shares of the disk, against every disk of the volume on any host",
    value: (d) => d.shares,
    cell: (d) => (
      <>
        {d.shares.toLocaleString("en")}
        {d.shares_from !== "configuration" && <span class="tag" title={`from: ${d.shares_from}`}>{d.shares_from}</span>}
      </>
    ),
    numeric: true,
  },
  { key: "iops", title: "IO/s", help: "IOs completed a second", value: (d) => d.iops, cell: (d) => number(d.iops), numeric: true },
  {
    key: "entitled",
    title: "of its part",
    help: "IO/s received, of those that its shares entitle it to beside the others that want more",
    value: (d) => part(d),
    cell: (d) => <Part disk={d} />,
    numeric: true,
    wide: true,
  },
  { key: "bytes", title: "MiB/s", help: "MiB a second", value: (d) => d.bytes_per_s, cell: (d) => mib(d.bytes_per_s), numeric: true, wide: true },
  { key: "device", title: "Array, ms", help: "Mean time of an IO at the array, in milliseconds", value: (d) => d.device_ms, cell: (d) => number(d.device_ms), numeric: true },
  { key: "held", title: "Held, ms", help: "Mean time that an IO is held in this host's queue, in milliseconds", value: (d) => d.held_ms, cell: (d) => number(d.held_ms), numeric: true },
  { key: "outstanding", title: "Outst.", help: "Mean outstanding IOs at the array", value: (d) => d.outstanding, cell: (d) => number(d.outstanding), numeric: true, wide: true },
  { key: "slice", title: "Slice", help: "Outstanding IOs that its shares give it", value: (d) => d.slice, cell: (d) => number(d.slice), numeric: true, wide: true },
  { key: "limit", title: "Limited by", help: "What keeps the disk from doing more", value: (d) => d.limited_by, cell: (d) => d.limited_by ?? "", wide: true },
];

const part = (disk: Disk) =>
  disk.entitled_iops && disk.iops != null ? disk.iops / disk.entitled_iops : null;

function Part({ disk }: { disk: Disk }) {
  const value = part(disk);
  if (value == null) return <span class="soft">–</span>;
  return (
    <span class="part">
      <meter min={0} max={2} low={0.9} high={1.1} optimum={1} value={Math.min(2, value)} aria-hidden="true" />
      {Math.round(100 * value)} %
    </span>
  );
}
