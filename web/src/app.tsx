// The page: one volume at a time, as this host and the exchange show it.

import { useCallback, useState } from "preact/hooks";

import { type Disk, type Outsider, type State, token, type Volume } from "./api";
import { DiskDialog, Fact, VolumeDialog } from "./change";
import { Charts } from "./charts";
import { Disks } from "./disks";
import { Events } from "./events";
import { duration, mib, number } from "./format";
import { Hosts } from "./hosts";
import { type Live, useLive } from "./live";
import { useTheme } from "./theme";

const SPANS = [
  { seconds: 300, title: "5 min" },
  { seconds: 900, title: "15 min" },
  { seconds: 3600, title: "1 h" },
];

export function App() {
  const [theme, toggle] = useTheme();
  const [name, setName] = useState<string | null>(() => decodeURIComponent(location.hash.slice(1)) || null);
  const [seconds, setSeconds] = useState(300);
  const [opened, setOpened] = useState<string | null>(null);
  const [changing, setChanging] = useState(false);
  const live = useLive({ volume: name, disk: opened, seconds });
  const volume = live.state?.volumes.find((v) => v.name === name) ?? live.state?.volumes[0];
  const disk = opened ? volume?.disks.find((d) => d.key === opened) : undefined;
  const open = useCallback((d: Disk) => setOpened(d.key), []);
  const choose = (chosen: string) => {
    history.replaceState(null, "", `#${encodeURIComponent(chosen)}`);
    setName(chosen);
  };

  return (
    <>
      <header>
        <h1>parda</h1>
        {live.state && <Who state={live.state} />}
        <span class="fill" />
        <Pulse live={live} />
        <fieldset class="choice">
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
        {live.state && live.state.volumes.length > 1 && volume && (
          <label class="volumes">
            Volume{" "}
            <select value={volume.name} onChange={(e) => choose(e.currentTarget.value)}>
              {live.state.volumes.map((v) => (
                <option key={v.name}>{v.name}</option>
              ))}
            </select>
          </label>
        )}
        {volume && (
          <>
            <Summary volume={volume} change={() => setChanging(true)} />
            <Charts volume={volume} live={live} theme={theme} seconds={seconds} />
            <Disks volume={volume} open={open} />
            <Hosts volume={volume} />
          </>
        )}
        {live.state && !volume && <p class="panel">This agent has no volume.</p>}
        {live.denied && <TokenForm />}
        {!live.state && <p class="panel soft">{live.fault ? `The agent does not answer: ${live.fault}` : "Asks the agent …"}</p>}
        {live.state && <Events events={live.events} />}
      </main>
      {volume && disk && (
        <DiskDialog
          key={opened}
          volume={volume}
          disk={disk}
          record={live.record}
          theme={theme}
          seconds={seconds}
          close={() => setOpened(null)}
        />
      )}
      {volume && changing && <VolumeDialog volume={volume} close={() => setChanging(false)} />}
    </>
  );
}

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

/** Whether what is shown is what is now. */
function Pulse({ live }: { live: Live }) {
  const text = live.fault ? `no answer: ${live.fault}` : live.answered_ms ? "live" : "…";
  return (
    <span role="status" class={live.fault ? "pulse bad" : "pulse good"}>
      {text}
    </span>
  );
}

/** What was found of load that is not under control, with what says so. */
function load(found: Outsider): string {
  const whole = (value: number) => value.toFixed(0);
  const size = `${whole(found.outstanding)} IOs outstanding, ${whole(100 * found.part)} % of all`;
  const says = `IOs take ${number(found.latency_ms)} ms, and ${number(found.usual_ms)} ms were usual with as many outstanding, for ${found.periods} periods`;
  return `Slower: the array is ${number(found.factor)} times slower, or an outsider uses it with about ${size}. ${says}.`;
}

function Summary({ volume, change }: { volume: Volume; change: () => void }) {
  const { threshold, exchange } = volume;
  const from = threshold.objective_of ? `for ${threshold.objective_of}` : threshold.from;
  const faults = [volume.fault, exchange?.fault, exchange?.slowed].filter(Boolean);
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
      {faults.map((fault) => (
        <p key={fault} class="bad">
          {fault}
        </p>
      ))}
      {volume.outsider && <p class="bad">{load(volume.outsider)}</p>}
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
