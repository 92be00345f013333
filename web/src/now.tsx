// A volume at a glance: a sentence with its colour, faults and their price, who is held back and why, and the numbers.

import type { Disk, Outsider, Volume } from "./api";
import { Fact } from "./change";
import { clock, mib, number } from "./format";
import type { Live } from "./live";
import { type Fault, faults, isHeld, level, percent, whole } from "./sentence";
import { OfShare } from "./share";

interface Props {
  volume: Volume;
  live: Live;
  change: () => void;
  open: (disk: Disk) => void;
}

/** Whether what is shown is what is now, and whether anything is wrong. */
export function Pulse({ live, volume }: { live: Live; volume: Volume | undefined }) {
  const wrong = live.state?.reload_refused || (volume && faults(volume).length > 0);
  const [tone, text] = live.fault
    ? ["bad", `no answer: ${live.fault}`]
    : live.answered_ms
      ? [wrong ? "soft" : "good", wrong ? "live, with a fault" : "live"]
      : ["soft", "…"];
  return (
    <span role="status" class={`pulse ${tone}`}>
      {text}
    </span>
  );
}

export function Now({ volume, live, change, open }: Props) {
  const { threshold, exchange } = volume;
  const from = threshold.objective_of ? `for ${threshold.objective_of}` : threshold.from;
  const found = live.fault ? [unanswered(live)] : faults(volume);
  return (
    <section class="panel" aria-label="Now">
      <div class="bar">
        <h2>
          {volume.name} <span class="tag">{volume.mode}</span> {volume.pool && <span class="tag">pool {volume.pool}</span>}
        </h2>
        <button type="button" onClick={change}>
          Change …
        </button>
      </div>
      <Faults found={found} />
      <Sentence volume={volume} stale={live.fault != null} />
      <Held volume={volume} open={open} />
      {exchange?.slowed && <p class="warn">{exchange.slowed}</p>}
      {volume.outsider && <p class="warn">{load(volume.outsider)}</p>}
      {volume.threshold_cost && (
        <p class="soft">
          The threshold costs throughput: without it about {number(volume.threshold_cost.factor)} times as many IO/s, at{" "}
          {number(volume.threshold_cost.latency_ms)} ms.
        </p>
      )}
      <dl class="facts">
        <Fact name="latency of all hosts">{number(volume.latency_ms)} ms</Fact>
        <Fact name={`threshold, ${from}`}>{number(threshold.ms)} ms</Fact>
        <Fact name="window of this host">{number(volume.window)}</Fact>
        <Fact name="outstanding">{number(volume.outstanding)}</Fact>
        <Fact name="held now">{number(volume.held)}</Fact>
        <Fact name="IO/s">{number(volume.iops)}</Fact>
        <Fact name="MiB/s">{mib(volume.bytes_per_s)}</Fact>
        <Fact name="latency goes by">{volume.source}</Fact>
      </dl>
    </section>
  );
}

export function Faults({ found }: { found: Fault[] }) {
  return (
    <>
      {found.map(({ what, costs, says }) => (
        <div key={what} class="sentence fault">
          {what} <span class="costs">{costs}</span>
          {says && <p class="costs soft">{says}</p>}
        </div>
      ))}
    </>
  );
}

/** The sentence on the level. `stale`: it is of the last answer, and has no colour. */
export function Sentence({ volume, stale }: { volume: Volume; stale: boolean }) {
  const { tone, text } = level(volume);
  return <p class={stale ? "sentence stale" : `sentence ${tone}`}>{text}</p>;
}

const unanswered = ({ fault, answered_ms }: Live): Fault => ({
  what: "The agent does not answer.",
  says: fault ?? "",
  costs: answered_ms ? `All below is of ${clock(answered_ms)}.` : "",
});

/** Most held VMs that are listed. The table has all. */
const LISTED = 8;

function Held({ volume, open }: { volume: Volume; open: (disk: Disk) => void }) {
  const held = volume.disks.filter(isHeld).toSorted((a, b) => (b.waiting ?? 0) - (a.waiting ?? 0));
  if (held.length === 0) return null;
  return (
    <ul class="held-back" aria-label="Held back">
      {held.slice(0, LISTED).map((disk) => (
        <li key={disk.key}>
          <button type="button" class="link" onClick={() => open(disk)}>
            {disk.name}
          </button>
          <span>
            wants {whole((disk.outstanding ?? 0) + (disk.waiting ?? 0))} IOs, has {whole(disk.outstanding ?? 0)}: {disk.limited_by}
          </span>
          {disk.of_share != null && <OfShare of_share={disk.of_share} a_second={disk.iops} />}
        </li>
      ))}
      {held.length > LISTED && <li class="soft">and {held.length - LISTED} more</li>}
    </ul>
  );
}

/** What was found of load that is not under control, with what says so. */
function load(found: Outsider): string {
  const size = `${whole(found.outstanding)} IOs outstanding, ${percent(found.part)} of all`;
  if (found.state === "outsider") {
    return `Outsider: load that is not under control uses the array with about ${size}. The hosts keep nine tenths of what they would have without control, at ${number(found.latency_ms)} ms.`;
  }
  if (found.state === "below-knee") {
    return `Below the knee: the threshold is too low for the array, or an outsider was there from the start. IOs take ${number(found.latency_ms)} ms.`;
  }
  const says = `IOs take ${number(found.latency_ms)} ms, and ${number(found.usual_ms)} ms were usual with as many outstanding, for ${found.periods} periods`;
  return `Slower: the array is ${number(found.factor)} times slower, or an outsider uses it with about ${size}. ${says}.`;
}
