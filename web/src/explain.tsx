// Why a VM is as fast as it is, from what the page has already: its limit, where the time of an IO went, who had the rest of the array, and
// where its settings come from. `parda explain` looks for longer, and predicts.

import type { Columns, Disk, State, Volume } from "./api";
import { number, settingText } from "./format";
import { isHeard, percent } from "./sentence";

/** Seconds of the record that means are of. */
const OVER_S = 10;

/** Others that are listed. */
const LISTED = 6;

function limit({ limited_by, outstanding, waiting, slice }: Disk): string {
  const wants = number((outstanding ?? 0) + (waiting ?? 0));
  switch (limited_by) {
    case "its own depth":
      return `Latency-bound: it keeps ${number(outstanding)} IOs outstanding of a slice of ${number(slice)}, and each takes as long as the array takes. More shares change nothing; a lower threshold helps.`;
    case "its slice":
      return `Share-bound: it wants ${wants} IOs at a time, and its shares give it ${number(outstanding)}. More shares help, and the others pay.`;
    case "its limit":
      return `It has all that its limit allows, and wants ${wants} IOs at a time. More shares change nothing.`;
    case "window_max":
      return `Its host has all that window_max allows: more shares take only from other VMs of this host. It wants ${wants} IOs at a time and has ${number(outstanding)}.`;
    case "flushes, trims":
      return "It does flushes, trims and the like, and no reads or writes: shares do not divide these.";
    case "nothing done":
      return "It asks for nothing.";
    default:
      return "Nothing is known of its last second.";
  }
}

/** Mean of a time over the last seconds, by the IOs of each. */
function mean(seen: Columns, name: string): number {
  let [sum, ios] = [0, 0];
  (seen[name] ?? []).slice(-OVER_S).forEach((value, i, all) => {
    const did = seen.iops?.at(i - all.length) ?? 0;
    if (value == null) return;
    sum += value * did;
    ios += did;
  });
  return ios > 0 ? sum / ios : 0;
}

export function Explain({ volume, disk, seen }: { volume: Volume; disk: Disk; seen: Columns }) {
  const [held, device] = [mean(seen, "held_ms"), mean(seen, "device_ms")];
  const within = Math.min(device, volume.threshold.ms);
  const parts = [
    { what: "held on this host", ms: held, tone: "held" },
    { what: "at the array, within the threshold", ms: within, tone: "good" },
    { what: "at the array, beyond the threshold", ms: device - within, tone: "fault" },
  ].filter(({ ms }) => ms > 0);
  const all = held + device;
  const others = [
    ...volume.disks.filter((other) => other.key !== disk.key).map((other) => ({ who: `VM ${other.name}`, had: other.outstanding ?? 0 })),
    ...volume.hosts.filter((host) => !host.own && isHeard(host)).map((host) => ({ who: `host ${host.name}`, had: host.outstanding ?? 0 })),
  ].toSorted((a, b) => b.had - a.had);
  const sum = others.reduce((total, other) => total + other.had, disk.outstanding ?? 0);
  return (
    <section aria-label="Explained">
      <p>{limit(disk)}</p>
      {all > 0 && (
        <>
          <h3>
            Where the time of an IO went <span class="soft">{number(all)} ms, over {OVER_S} s</span>
          </h3>
          <svg class="spent" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
            {parts.map(({ tone, ms }, i) => (
              <rect key={tone} class={tone} x={(100 * parts.slice(0, i).reduce((x, part) => x + part.ms, 0)) / all} width={(100 * ms) / all} height={6} />
            ))}
          </svg>
          <ul class="legend">
            {parts.map(({ what, ms, tone }) => (
              <li key={what}>
                <span class={`swatch ${tone}`} /> {what}: {number(ms)} ms, {percent(ms / all)}
              </li>
            ))}
          </ul>
        </>
      )}
      {sum > 0 && others.length > 0 && (
        <>
          <h3>Who had the rest of the outstanding IOs</h3>
          <ul class="legend">
            <li>
              <strong>{disk.name}</strong>: {number(disk.outstanding)}, {percent((disk.outstanding ?? 0) / sum)}
            </li>
            {others.slice(0, LISTED).map(({ who, had }) => (
              <li key={who}>
                {who}: {number(had)}, {percent(had / sum)}
              </li>
            ))}
            {others.length > LISTED && <li>and {others.length - LISTED} more</li>}
          </ul>
        </>
      )}
      <p class="soft">
        Other shares or another threshold, predicted: <code>parda explain {disk.name}</code>
      </p>
    </section>
  );
}

/** Settings in force of a VM or a tenant, and where they come from. */
export function Settings({ volume, of, state }: { volume: Volume; of: Pick<Disk, "settings" | "settings_from">; state: State }) {
  const { policy } = state;
  const own = policy?.volumes.find((v) => v.name === volume.name);
  const revision =
    policy == null
      ? "No policy is configured on this host."
      : own?.in_force == null
        ? "The policy has nothing in force for this volume."
        : `Policy of revision ${own.in_force} in force${policy.by ? `; the last one is by ${policy.by}` : ""}.`;
  const fault = policy?.fault ?? own?.fault;
  return (
    <section aria-label="Settings and policy">
      <h3>Settings and policy</h3>
      <p class={fault ? "bad" : "soft"}>
        {revision} {fault}
      </p>
      <ul class="legend">
        {Object.keys({ ...of.settings, ...of.settings_from }).map((key) => (
          <li key={key}>
            <code>{key}</code> {settingText(of.settings[key]) || "none"} <span class="tag">{of.settings_from[key] ?? "default"}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
