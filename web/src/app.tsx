// The page: one volume at a time, as this host and the exchange show it.

import { useCallback, useEffect, useState } from "preact/hooks";

import { type Disk, type State, type SteeredVm, type Tenant, token } from "./api";
import { DiskDialog, SteeredDialog, TenantDialog, VolumeDialog } from "./change";
import { Charts } from "./charts";
import { Cluster } from "./cluster";
import { Disks } from "./disks";
import { SteeredVms } from "./steered";
import { Tenants } from "./tenants";
import { Events } from "./events";
import { duration } from "./format";
import { Hosts } from "./hosts";
import { useLive } from "./live";
import { Faults, Now, Pulse } from "./now";
import { type Fault } from "./sentence";
import { useTheme } from "./theme";

const SPANS = [
  { seconds: 300, title: "5 min" },
  { seconds: 900, title: "15 min" },
  { seconds: 3600, title: "1 h" },
];

/** The address of the view of the cluster. A volume's is its encoded name, which has no slash. */
const CLUSTER = "#/cluster";

/** The hash of the address, as links and the browser's buttons change it. */
function useHash(): string {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const follow = () => setHash(location.hash);
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return hash;
}

export function App() {
  const [theme, toggle] = useTheme();
  const hash = useHash();
  const cluster = hash === CLUSTER;
  const name = cluster ? null : decodeURIComponent(hash.slice(1)) || null;
  const [seconds, setSeconds] = useState(300);
  const [opened, setOpened] = useState<string | null>(null);
  const [changing, setChanging] = useState(false);
  const [ofTenant, setOfTenant] = useState<string | null>(null);
  const [ofVm, setOfVm] = useState<string | null>(null);
  const live = useLive({ volume: name, disk: opened, seconds });
  const volume = live.state?.volumes.find((v) => v.name === name) ?? live.state?.volumes[0];
  const disk = opened ? volume?.disks.find((d) => d.key === opened) : undefined;
  const open = useCallback((d: Disk) => setOpened(d.key), []);
  const tenant = volume?.tenants?.find((t) => t.name === ofTenant);
  const openTenant = useCallback((t: Tenant) => setOfTenant(t.name), []);
  const vm = volume?.steer?.vms.find((v) => v.key === ofVm);
  const openVm = useCallback((v: SteeredVm) => setOfVm(v.key), []);

  return (
    <>
      <header>
        <h1>parda</h1>
        {live.state && <Who state={live.state} />}
        <nav class="choice" aria-label="View">
          <a href={`#${encodeURIComponent(volume?.name ?? "")}`} aria-current={cluster ? undefined : "page"}>
            Host
          </a>
          <a href={CLUSTER} aria-current={cluster ? "page" : undefined}>
            Cluster
          </a>
        </nav>
        <span class="fill" />
        <Pulse live={live} volume={volume} />
        <fieldset class="choice" hidden={cluster}>
          <legend class="hidden">Time that the charts span</legend>
          {SPANS.map((span) => (
            <label key={span.seconds}>
              <input type="radio" name="span" checked={seconds === span.seconds} onChange={() => setSeconds(span.seconds)} />
              <span>{span.title}</span>
            </label>
          ))}
        </fieldset>
        <button type="button" onClick={toggle}>
          {theme === "dark" ? "Light" : "Dark"}
        </button>
      </header>
      <main>
        {live.state?.reload_refused && !live.fault && <Faults found={[refused(live.state.reload_refused)]} />}
        {cluster && live.state && <Cluster state={live.state} stale={live.fault != null} />}
        {!cluster && live.state && live.state.volumes.length > 1 && volume && (
          <label class="volumes">
            Volume{" "}
            <select value={volume.name} onChange={(e) => (location.hash = encodeURIComponent(e.currentTarget.value))}>
              {live.state.volumes.map((v) => (
                <option key={v.name}>{v.name}</option>
              ))}
            </select>
          </label>
        )}
        {!cluster && live.state && volume && (
          <>
            <Now volume={volume} live={live} change={() => setChanging(true)} open={open} />
            <Charts volume={volume} live={live} theme={theme} seconds={seconds} />
            <Tenants volume={volume} open={openTenant} />
            {volume.steer ? <SteeredVms steer={volume.steer} open={openVm} /> : <Disks volume={volume} open={open} />}
            <section class="panel">
              <h2>Hosts</h2>
              <Hosts volume={volume} pages={live.state.pages} />
            </section>
          </>
        )}
        {live.state && !volume && <p class="panel">This agent has no volume.</p>}
        {live.denied && <TokenForm />}
        {!live.state && <p class="panel soft">{live.fault ? `The agent does not answer: ${live.fault}` : "Asks the agent …"}</p>}
        {live.state && <Events events={live.events} />}
      </main>
      {live.state && volume && disk && (
        <DiskDialog
          key={opened}
          state={live.state}
          volume={volume}
          disk={disk}
          record={live.record}
          theme={theme}
          seconds={seconds}
          close={() => setOpened(null)}
        />
      )}
      {live.state && volume && tenant && <TenantDialog state={live.state} volume={volume} tenant={tenant} close={() => setOfTenant(null)} />}
      {live.state && volume && vm && <SteeredDialog state={live.state} volume={volume} vm={vm} close={() => setOfVm(null)} />}
      {volume && changing && <VolumeDialog volume={volume} close={() => setChanging(false)} />}
    </>
  );
}

const refused = (says: string): Fault => ({
  what: "The configuration file was refused.",
  costs: "The one from before is in force. With this one the agent would not start.",
  says,
});

function Who({ state }: { state: State }) {
  return (
    <span class="soft">
      {state.host} · {state.version} · up {duration(state.uptime_s)}
    </span>
  );
}

function TokenForm() {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const secret = new FormData(event.currentTarget as HTMLFormElement).get("token");
    if (typeof secret === "string") token.set(secret);
  };
  return (
    <form class="panel" onSubmit={submit}>
      <label>
        Token
        <input type="password" name="token" autoComplete="off" required />
      </label>
      <div class="bar">
        <button type="submit" class="primary">
          Use it in this tab
        </button>
      </div>
    </form>
  );
}
