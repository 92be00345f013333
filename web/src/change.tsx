// Dialogs that change a disk or a volume, and show the value that is in force then.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { type Change, type Changed, changeDisk, changeVolume, type Disk, Refused, resetDisk, type State, token, type Volume } from "./api";
import type { Column } from "./api";
import { Chart } from "./chart";
import { Explain, Settings } from "./explain";
import { mib, number } from "./format";
import type { Record_ } from "./record";
import type { Theme } from "./theme";

interface ModalProps {
  title: string;
  close: () => void;
  children: ComponentChildren;
}

/** A dialog that keeps the focus until it is closed, and gives it back. */
function Modal({ title, close, children }: ModalProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="dialog-title" onClose={close}>
      <div class="bar">
        <h2 id="dialog-title">{title}</h2>
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
      {children}
    </dialog>
  );
}

interface FormProps {
  children: ComponentChildren;
  /** Reads the fields, and says what is to be changed. */
  wanted: (fields: FormData) => Change;
  send: (change: Change) => Promise<Changed>;
}

/** A form whose answer is the agent's: what is in force, or why it refused. */
function ChangeForm({ children, wanted, send }: FormProps) {
  const [said, setSaid] = useState<{ good: boolean; text: string } | null>(null);
  const [needsToken, setNeedsToken] = useState(false);
  const [busy, setBusy] = useState(false);

  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    const secret = fields.get("token");
    if (typeof secret === "string" && secret !== "") token.set(secret);
    const change = wanted(fields);
    if (Object.keys(change).length === 0) {
      setSaid({ good: false, text: "Nothing was changed." });
      return;
    }
    if (fields.get("temporary")) change.keep = "until_restart";
    setBusy(true);
    try {
      const { settings } = await send(change);
      setSaid({ good: true, text: settings.map(outcome).join(", ") });
      setNeedsToken(false);
    } catch (error) {
      const denied = error instanceof Refused && (error.status === 401 || error.status === 403);
      if (denied) token.forget();
      setNeedsToken(denied);
      setSaid({ good: false, text: error instanceof Error ? error.message : String(error) });
    } finally {
      setBusy(false);
    }
  };

  return (
    <form onSubmit={submit}>
      {children}
      <label class="check">
        <input type="checkbox" name="temporary" /> until the agent restarts
      </label>
      {needsToken && (
        <label>
          Token with the role <code>write</code>
          <input type="password" name="token" autoComplete="off" required />
        </label>
      )}
      <div class="bar">
        <button type="submit" class="primary" disabled={busy}>
          Change
        </button>
        <output class={said ? (said.good ? "good" : "bad") : ""}>{said?.text}</output>
      </div>
    </form>
  );
}

const outcome = ({ setting, in_force, took_effect }: Changed["settings"][number]) =>
  `${setting} ${in_force ?? "not set"} ${took_effect ? "in force" : "for now: the change follows"}`;

/** What a field says, if it says something else than what was there. */
function differs(fields: FormData, name: string, before: string): string | null {
  const value = String(fields.get(name) ?? "").trim();
  return value === before ? null : value;
}

interface DiskProps {
  state: State;
  volume: Volume;
  disk: Disk;
  record: Record_;
  theme: Theme;
  seconds: number;
  close: () => void;
}

export function DiskDialog({ state, volume, disk, record, theme, seconds, close }: DiskProps) {
  const seen = record.disks[disk.key] ?? {};
  const target = disk.latency_target_ms == null ? "" : `${disk.latency_target_ms}ms`;
  const [before] = useState({ shares: String(disk.shares), target });
  const wanted = (fields: FormData): Change => {
    const change: Change = {};
    const shares = differs(fields, "shares", before.shares);
    if (shares != null) change.shares = Number(shares);
    const aim = differs(fields, "target", before.target);
    if (aim != null) change.latency_target = aim;
    return change;
  };
  // An empty target is the configuration's.
  const send = async ({ latency_target, ...change }: Change): Promise<Changed> => {
    if (latency_target !== "") return changeDisk(volume.name, disk.key, { latency_target, ...change });
    const reset = await resetDisk(volume.name, disk.key, "latency_target");
    if (change.shares === undefined) return reset;
    const { settings } = await changeDisk(volume.name, disk.key, change);
    return { settings: [...settings, ...reset.settings] };
  };
  const line = (label: string, values: Column | undefined, colour: number) => ({ label, values: values ?? [], colour });
  const common = { time: record.time, theme, seconds };
  return (
    <Modal title={disk.name} close={close}>
      {disk.fault && <p class="bad">{disk.fault}</p>}
      <dl class="facts">
        <Fact name="IO/s">{number(disk.iops)}</Fact>
        <Fact name="MiB/s">{mib(disk.bytes_per_s)}</Fact>
        <Fact name="at the array">{number(disk.device_ms)} ms</Fact>
        <Fact name="held">{number(disk.held_ms)} ms</Fact>
        <Fact name="outstanding">{number(disk.outstanding)}</Fact>
        <Fact name="its slice">{number(disk.slice)}</Fact>
        <Fact name="failed IOs">{number(disk.errors)}</Fact>
        <Fact name="limited by">{disk.limited_by ?? "–"}</Fact>
      </dl>
      <Explain volume={volume} disk={disk} seen={seen} />
      <Chart
        {...common}
        title="Time of an IO"
        unit="ms"
        lines={[line("at the array", seen.device_ms, 0), line("held", seen.held_ms, 1)]}
        words={`${number(disk.device_ms)} ms at the array and ${number(disk.held_ms)} ms held now`}
      />
      <Chart
        {...common}
        title="Outstanding IOs"
        unit="IOs"
        lines={[line("outstanding", seen.outstanding, 2), line("slice", seen.slice, 3)]}
        words={`${number(disk.outstanding)} of a slice of ${number(disk.slice)} now`}
      />
      <Settings volume={volume} disk={disk} state={state} />
      <ChangeForm wanted={wanted} send={send}>
        <label>
          Shares
          <input name="shares" type="number" min={1} max={1_000_000} step={1} defaultValue={before.shares} required />
        </label>
        <label>
          Latency target
          <input name="target" placeholder="that of the configuration, or 10ms" defaultValue={before.target} autoComplete="off" />
        </label>
      </ChangeForm>
    </Modal>
  );
}

const MODES = ["parda", "published", "observe", "off"];

export function VolumeDialog({ volume, close }: { volume: Volume; close: () => void }) {
  const [before] = useState({
    threshold: volume.threshold.from === "auto" ? "auto" : `${volume.threshold.ms}ms`,
    mode: volume.mode,
  });
  const wanted = (fields: FormData): Change => {
    const change: Change = {};
    const threshold = differs(fields, "threshold", before.threshold);
    if (threshold != null) change.latency_threshold = threshold;
    const mode = differs(fields, "mode", before.mode);
    if (mode != null) change.mode = mode;
    return change;
  };
  const modes = MODES.includes(before.mode) ? MODES : [before.mode, ...MODES];
  return (
    <Modal title={`Volume ${volume.name}`} close={close}>
      <p class="soft">
        This changes this host alone. Hosts with another threshold are named on all hosts: change the configuration of each.
      </p>
      <ChangeForm wanted={wanted} send={(change) => changeVolume(volume.name, change)}>
        <label>
          Latency threshold
          <input name="threshold" defaultValue={before.threshold} placeholder="30ms or auto" required autoComplete="off" />
        </label>
        <label>
          Mode
          <select name="mode" defaultValue={before.mode}>
            {modes.map((mode) => (
              <option key={mode} selected={mode === before.mode}>
                {mode}
              </option>
            ))}
          </select>
        </label>
      </ChangeForm>
    </Modal>
  );
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
