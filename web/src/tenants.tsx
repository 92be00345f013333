// The tenants of a volume: what their VMs do together, on all hosts.

import { useMemo } from "preact/hooks";

import type { Tenant, Volume } from "./api";
import { number, settingText } from "./format";
import { type ColumnOf, Table } from "./table";

/** Number that a setting of a tenant has, null if it is not set. */
const numberSet = (tenant: Tenant, key: "shares" | "reservation") => (tenant.settings[key] as number | undefined) ?? null;

const columnsOf = (open: (tenant: Tenant) => void): ColumnOf<Tenant>[] => [
  {
    key: "name",
    title: "Tenant",
    help: "Name of the tenant, the same on all hosts",
    value: (t) => t.name,
    cell: (t) => (
      <button type="button" class="link" onClick={() => open(t)}>
        {t.name}
      </button>
    ),
  },
  {
    key: "shares",
    title: "Shares",
    help: "Shares of all of its VMs together",
    value: (t) => numberSet(t, "shares"),
    cell: (t) => numberSet(t, "shares")?.toLocaleString("en") ?? <span class="soft">its VMs'</span>,
    numeric: true,
  },
  { key: "iops", title: "IO/s", help: "IOs completed a second, on all hosts that are heard", value: (t) => t.iops, cell: (t) => number(t.iops), numeric: true },
  { key: "own", title: "Here", help: "IOs completed a second, on this host", value: (t) => t.own_iops, cell: (t) => number(t.own_iops), numeric: true },
  { key: "limit", title: "Limit", help: "The most that its VMs do together", value: (t) => settingText(t.settings.limit), cell: (t) => settingText(t.settings.limit), wide: true },
  {
    key: "part",
    title: "Part here, %",
    help: "This host's part of the limit",
    value: (t) => t.limit_part,
    cell: (t) => (t.limit_part == null ? "" : number(100 * t.limit_part)),
    numeric: true,
    wide: true,
  },
  {
    key: "reservation",
    title: "Reserved, IO/s",
    help: "IOs a second that its VMs have whenever they ask for them",
    value: (t) => numberSet(t, "reservation"),
    cell: (t) => (
      <>
        {number(numberSet(t, "reservation"))} {t.short && <span class="bad">short</span>}
      </>
    ),
    numeric: true,
  },
];

export function Tenants({ volume, open }: { volume: Volume; open: (tenant: Tenant) => void }) {
  const columns = useMemo(() => columnsOf(open), [open]);
  if (!volume.tenants?.length) return null;
  return (
    <section class="panel">
      <h2>Tenants</h2>
      <Table label="Tenants" columns={columns} rows={volume.tenants} id={(t) => t.name} first={{ key: "iops", descending: true }} none="" />
    </section>
  );
}
