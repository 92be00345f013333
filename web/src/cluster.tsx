// All hosts of all volumes of this agent, with the sums of their VMs, as far as the exchange tells them.

import type { Host, State, Volume } from "./api";
import { Fact } from "./change";
import { mib, number } from "./format";
import { Hosts } from "./hosts";
import { Faults, Sentence } from "./now";
import { faults, isHeard } from "./sentence";

export function Cluster({ state, stale }: { state: State; stale: boolean }) {
  return (
    <>
      {state.volumes.map((volume) => (
        <One key={volume.name} volume={volume} pages={state.pages} stale={stale} />
      ))}
    </>
  );
}

function One({ volume, pages, stale }: { volume: Volume; pages: string | null; stale: boolean }) {
  const heard = volume.hosts.filter(isHeard);
  const sum = (of: (host: Host) => number | null) => heard.reduce((all, host) => all + (of(host) ?? 0), 0);
  return (
    <section class="panel" aria-label={`Cluster of ${volume.name}`}>
      <h2>
        <a href={`#${encodeURIComponent(volume.name)}`}>{volume.name}</a> <span class="tag">{volume.mode}</span>{" "}
        {volume.pool && <span class="tag">pool {volume.pool}</span>}
      </h2>
      <Faults found={faults(volume)} />
      <Sentence volume={volume} stale={stale} />
      <dl class="facts">
        <Fact name="hosts heard">
          {heard.length} of {volume.hosts.length}
        </Fact>
        <Fact name="shares of their VMs">{number(sum((h) => h.shares))}</Fact>
        <Fact name="outstanding">{number(sum((h) => h.outstanding))}</Fact>
        <Fact name="IO/s">{number(sum((h) => h.iops))}</Fact>
        <Fact name="MiB/s">{mib(sum((h) => h.bytes_per_s))}</Fact>
      </dl>
      <Hosts volume={volume} pages={pages} />
    </section>
  );
}
