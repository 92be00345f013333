// What the page says first: one sentence on a volume and its colour, faults with what they cost, and who is held back. No DOM: web/test/sentence.mjs
// asks it.

import type { Disk, Host, Steer, Volume } from "./api";
import { duration } from "./format";

/** Colour of a sentence: nobody waits; VMs are held back as their shares say; something is not as it should be. */
export type Tone = "good" | "held" | "fault";

export interface Sentence {
  tone: Tone;
  text: string;
}

export interface Fault {
  what: string;
  /** The agent's own words. */
  says: string;
  /** What does not work because of it, and what does. */
  costs: string;
}

/** Where the latency is, of its threshold: `ABOVE` is also what the metric `threshold_missed` takes for missed. */
const BELOW = 0.9;
const AT = 1.1;
const ABOVE = 1.3;

/** Deviation from its share with which a VM or a host still has it, beside the chance of few IOs. */
const OFF = 0.25;

/** Seconds after which a silent host is no fault any more: it will hardly come back. */
const FORGOTTEN_S = 3600;

/** Modes whose windows follow the latency. */
const FOLLOWS = ["parda", "published"];

const HELD = ["its slice", "window_max"];

/** Whether the disk wants more than shares and bounds give it. */
export const isHeld = (disk: Disk) => disk.limited_by != null && HELD.includes(disk.limited_by);

/** Whether a host counts: it is this one, or it is heard. */
export const isHeard = (host: Host) => host.own || host.liveness === "live";

export const isHeldHost = (host: Host) => isHeard(host) && host.limited_by != null && HELD.includes(host.limited_by);

/** Whether that is the share, within chance. `a_second`: IOs that were counted. */
export const isFair = (of_share: number, a_second: number | null) =>
  Math.abs(of_share - 1) <= OFF + 1 / Math.sqrt(Math.max(1, a_second ?? 1));

/** The latency and its threshold, and who is held back. */
export function level(volume: Volume): Sentence {
  const held = heldBack(volume);
  const { latency_ms, threshold, mode, hosts } = volume;
  if (latency_ms == null) return { tone: held.tone, text: `No latency known yet, threshold ${whole(threshold.ms)} ms. ${held.text}` };
  // The latency stays that of the last IO.
  const idle = hosts.length > 0 && hosts.filter(isHeard).every((host) => host.latency_ms == null && !host.outstanding);
  if (idle) return { tone: held.tone, text: `No IO at the array, threshold ${whole(threshold.ms)} ms. ${held.text}` };
  const of = latency_ms / threshold.ms;
  const place = of > AT ? "Above" : of < BELOW ? "Below" : "At";
  const missed = of > ABOVE && FOLLOWS.includes(mode);
  const tone = missed ? "fault" : held.tone === "good" && of > AT ? "held" : held.tone;
  return { tone, text: `${place} the threshold: ${whole(latency_ms)} of ${whole(threshold.ms)} ms. ${held.text}` };
}

function heldBack({ mode, disks, hosts, steer, source, exchange }: Volume): Sentence {
  if (mode === "off" || mode === "observe") return { tone: "good", text: `Nothing is held back: mode ${mode}.` };
  const vms = disks.filter(isHeld);
  const others = hosts.filter((host) => !host.own && isHeldHost(host));
  const own = steer != null && hosts.some((host) => host.own && isHeldHost(host));
  const here = vms.length > 0 ? count(vms.length, "VM") : own ? "VMs of this host" : "";
  const there = others.length > 0 ? `VMs on ${count(others.length, "other host")}` : "";
  if (!here && !there && exchange?.silence) return { tone: "fault", text: "Nobody is held back here; nothing is known of other hosts." };
  if (!here && !there) return { tone: "good", text: "Nobody is held back." };
  const who = here && there ? `${here} held back, and ${there}` : `${here || there} held back`;
  const all = [...vms, ...hosts.filter((host) => !(host.own && vms.length > 0))];
  const unfair = all.filter((one) => one.of_share != null && !isFair(one.of_share, one.iops));
  // Who takes what others lack comes first.
  const sorted = unfair.toSorted((a, b) => Number(more(b)) - Number(more(a)) || off(b) - off(a));
  if (unfair.length > 0) {
    const parts = some(sorted.map(({ name, of_share }) => `${name} ${percent(of_share ?? 0)}`));
    return { tone: "fault", text: `${who}; not each has its share: ${parts}.` };
  }
  const alone = source === "cluster" || (!exchange?.silence && !hosts.some((host) => !host.own && host.liveness !== "left"));
  return { tone: "held", text: `${who}; each has its share${alone ? "" : " of what this host has"}.` };
}

/** Patterns without a VM, and VMs without a pattern. */
export function missed({ patterns_without_vm = [], vms_without_pattern = [] }: Steer): string[] {
  return [
    ...patterns_without_vm.map(({ vm, cgroup, why }) => `VM ${vm}: "${cgroup}" ${why}.`),
    ...vms_without_pattern.map(({ cgroup, name, why }) => {
      const vm = name ? ` (VM ${name})` : "";
      return `Cgroup ${cgroup}${vm} has neither shares nor a limit: ${why ?? "no pattern matches it"}.`;
    }),
  ];
}

/** Faults of a volume, each with its price. */
export function faults({ fault, steer, disks, exchange, hosts, source }: Volume): Fault[] {
  const found: Fault[] = [];
  if (fault) {
    const costs = steer ? "Its VMs go on without control." : "This host serves none of its VMs until it runs again. Other hosts go on.";
    found.push({ what: "The volume does not run.", costs, says: fault });
  }
  if (steer?.fault) found.push({ what: "Not all is steered.", costs: "VMs go on, and some are not held to their shares.", says: steer.fault });
  const broken = disks.filter((disk) => disk.fault);
  const ofDisks = (those: Disk[], what: string, costs: string) => {
    const says = some(those.map((disk) => `${disk.name}: ${disk.fault}`));
    if (those.length > 0) found.push({ what: `${some(those.map((disk) => disk.name))}: ${what}`, costs, says });
  };
  ofDisks(
    broken.filter((disk) => disk.state !== "serving"),
    "not served.",
    "Clients cannot connect to it until it opens. Other VMs go on.",
  );
  ofDisks(
    broken.filter((disk) => disk.state === "serving"),
    "its IOs fail.",
    "Its clients get errors or wait. Other VMs go on.",
  );
  if (exchange?.fault) found.push({ what: "The exchange fails.", costs: `No IO waits for it. ${WITHOUT[source] ?? ""}`, says: exchange.fault });
  if (exchange?.silence) found.push({ what: "No other host is heard.", costs: `No IO waits for it. ${WITHOUT[source] ?? ""}`, says: exchange.silence });
  const deaf = exchange?.one_way ?? [];
  if (deaf.length > 0) {
    const what = deaf.length === 1 ? "A host is heard that does not hear this one." : `${deaf.length} hosts are heard that do not hear this one.`;
    found.push({ what, costs: "What they say does not count.", says: some(deaf) });
  }
  const silent = hosts.filter((host) => !host.own && ["stale", "gone"].includes(host.liveness) && (host.age_s ?? 0) < FORGOTTEN_S);
  // Where the exchange fails, nobody is heard.
  if (silent.length > 0 && !exchange?.fault) {
    const shares = silent.reduce((sum, host) => sum + (host.shares ?? 0), 0);
    const counts = source === "last-good" ? `, and counts with the ${shares.toLocaleString("en")} shares that it had` : "";
    const costs =
      source === "cluster" ? "The hosts that are heard divide the array without it." : `It may still load the array${counts}. ${WITHOUT[source] ?? ""}`;
    found.push({ what: `${some(silent.map((host) => `${host.name} is silent for ${duration(host.age_s)}`))}.`, costs, says: "" });
  }
  for (const { name, doubt } of hosts.filter((host) => host.doubt && !host.ignored)) {
    const costs = "What it says counts for less. If it is wrong, leave it out: parda exchange ignore.";
    found.push({ what: `${name} is not believed.`, costs, says: doubt ?? "" });
  }
  return found;
}

/** What control rests on without enough other hosts, by the source of the latency. */
const WITHOUT: Record<string, string> = {
  cluster: "Other hosts are still heard.",
  "last-good": "Hosts keep the parts that they had: changes of shares or load on other hosts do not count meanwhile.",
  local: "This host goes by its own latency: shares hold among its VMs, not across hosts.",
};

interface Sharer {
  of_share: number | null;
}

const more = ({ of_share }: Sharer) => (of_share ?? 1) > 1;

/** How far that is from the share, either way. */
const off = ({ of_share }: Sharer) => Math.abs(Math.log(Math.max(of_share ?? 1, 1e-3)));

/** How many are named. */
const NAMED = 3;

const some = (parts: string[]) =>
  parts.length <= NAMED ? parts.join(", ") : `${parts.slice(0, NAMED).join(", ")} and ${parts.length - NAMED} more`;

const count = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`;

export const percent = (part: number) => `${Math.round(100 * part).toLocaleString("en")} %`;

/** Two digits, or all before the point. */
export const whole = (value: number) => (value >= 10 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(2))));
