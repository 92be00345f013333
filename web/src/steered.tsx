// The VMs of a steered device on this host.

import { useMemo } from "preact/hooks";

import type { Steer, SteeredVm } from "./api";
import { mib, number, settingText } from "./format";
import { missed } from "./sentence";
import { type ColumnOf, Table } from "./table";

const columnsOf = (open: (vm: SteeredVm) => void): ColumnOf<SteeredVm>[] => [
  {
    key: "name",
    title: "VM",
    help: "Name of the VM in the configuration",
    value: (vm) => vm.key,
    cell: (vm) => (
      <button type="button" class="link" onClick={() => open(vm)}>
        {vm.key}
      </button>
    ),
  },
  { key: "shares", title: "Shares", help: "Shares of the VM, against every VM of the volume on any host", value: (vm) => vm.shares, cell: (vm) => vm.shares.toLocaleString("en"), numeric: true },
  { key: "iops", title: "IO/s", help: "IOs completed a second", value: (vm) => vm.iops, cell: (vm) => number(vm.iops), numeric: true },
  { key: "bytes", title: "MiB/s", help: "MiB a second", value: (vm) => vm.bytes_per_s, cell: (vm) => mib(vm.bytes_per_s), numeric: true, wide: true },
  { key: "pending", title: "Pending", help: "Mean IOs submitted and not completed", value: (vm) => vm.pending, cell: (vm) => number(vm.pending), numeric: true, wide: true },
  { key: "limit", title: "Limit", help: "The most that the VM does", value: (vm) => settingText(vm.settings.limit), cell: (vm) => settingText(vm.settings.limit), wide: true },
  { key: "by", title: "Limited by", help: "What kept the VM from doing more in the last period", value: (vm) => vm.limited_by, cell: (vm) => <span class={vm.limited_by ? "warn" : ""}>{vm.limited_by ?? ""}</span> },
];

export function SteeredVms({ steer, open }: { steer: Steer; open: (vm: SteeredVm) => void }) {
  const columns = useMemo(() => columnsOf(open), [open]);
  const notes = missed(steer);
  return (
    <section class="panel">
      <h2>VMs of this host</h2>
      <Table label="VMs of this host" columns={columns} rows={steer.vms} id={(vm) => vm.key} first={{ key: "iops", descending: true }} none={notes.length > 0 ? "No VM." : "The host has the device as one."} />
      {notes.map((note) => (
        <p key={note} class="warn">
          {note}
        </p>
      ))}
    </section>
  );
}
