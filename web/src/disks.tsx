// The VMs of this host: what each gets, and what limits it.

import { useMemo, useRef, useState } from "preact/hooks";
import { useEffect } from "preact/hooks";

import type { Disk, Volume } from "./api";
import { mib, number } from "./format";
import { isHeld } from "./sentence";
import { OfShare } from "./share";
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
    (disk) => disk.name.toLowerCase().includes(wanted) && (!limited || isHeld(disk)),
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
    wide: true,
  },
  { key: "iops", title: "IO/s", help: "IOs completed a second", value: (d) => d.iops, cell: (d) => number(d.iops), numeric: true },
  {
    key: "share",
    title: "Of its share",
    help: "What a VM that wants more has of outstanding IOs (or of throughput, if shares divide that), of what its shares give; the mark is 100 %",
    value: (d) => d.of_share,
    cell: (d) => (d.of_share == null ? <span class="soft">{d.limited_by === "its own depth" ? "all it wants" : "–"}</span> : <OfShare of_share={d.of_share} a_second={d.iops} />),
    numeric: true,
  },
  { key: "bytes", title: "MiB/s", help: "MiB a second", value: (d) => d.bytes_per_s, cell: (d) => mib(d.bytes_per_s), numeric: true, wide: true },
  { key: "device", title: "Array, ms", help: "Mean time of an IO at the array, in milliseconds", value: (d) => d.device_ms, cell: (d) => number(d.device_ms), numeric: true, wide: true },
  { key: "held", title: "Held, ms", help: "Mean time that an IO is held in this host's queue, in milliseconds", value: (d) => d.held_ms, cell: (d) => number(d.held_ms), numeric: true, wide: true },
  { key: "outstanding", title: "Outst.", help: "Mean outstanding IOs at the array", value: (d) => d.outstanding, cell: (d) => number(d.outstanding), numeric: true, wide: true },
  { key: "slice", title: "Slice", help: "Outstanding IOs that its shares give it", value: (d) => d.slice, cell: (d) => number(d.slice), numeric: true, wide: true },
  { key: "limit", title: "Limited by", help: "What keeps the disk from doing more", value: (d) => d.limited_by, cell: (d) => <span class={isHeld(d) ? "warn" : ""}>{d.limited_by ?? ""}</span> },
];
