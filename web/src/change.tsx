// Dialogs that change a disk or a volume, and show the value that is in force then.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { type Change, type Changed, change, type Column, type Disk, place, Refused, type State, type SteeredVm, type Tenant, token, type Volume } from "./api";
import { Chart } from "./chart";
import { Explain, Settings } from "./explain";
import { limitOf, mib, number, numberOf, settingText } from "./format";
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
  /** What the fields have at first, by the keys of the settings. */
  first: Record<string, string>;
  /** The value that a text means. */
  value?: (key: string, text: string) => unknown;
  /** Path of the settings. */
  at: string;
}

/** A form whose answer is the agent's: what is in force, or why it refused. */
function ChangeForm({ children, first, value = (_, text) => text, at }: FormProps) {
  const [before, setBefore] = useState(first);
  const [said, setSaid] = useState<{ good: boolean; text: string } | null>(null);
  const [needsToken, setNeedsToken] = useState(false);
  const [busy, setBusy] = useState(false);

  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    const secret = fields.get("token");
    if (typeof secret === "string" && secret !== "") token.set(secret);
    const texts = Object.keys(before).map((key) => [key, String(fields.get(key) ?? "").trim()] as const);
    const changed = texts.filter(([key, text]) => text !== before[key]);
    const changes: Change = Object.fromEntries(changed.map(([key, text]) => [key, text && value(key, text)]));
    if (changed.length === 0) {
      setSaid({ good: false, text: "Nothing was changed." });
      return;
    }
    if (fields.get("temporary")) changes.keep = "until_restart";
    setBusy(true);
    // What was changed before a request was refused stays so.
    const done: string[] = [];
    const took = (settings: Changed["settings"]) => {
      done.push(...settings.map(outcome));
      setBefore((before) => ({ ...before, ...Object.fromEntries(texts.filter(([key]) => settings.some(({ setting }) => setting === key))) }));
    };
    try {
      await change(at, changes, took);
      setSaid({ good: true, text: done.join(", ") });
      setNeedsToken(false);
    } catch (error) {
      const denied = error instanceof Refused && (error.status === 401 || error.status === 403);
      if (denied) token.forget();
      setNeedsToken(denied);
      setSaid({ good: false, text: [...done, error instanceof Error ? error.message : String(error)].join(", ") });
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
  `${setting} ${settingText(in_force) || "not set"} ${took_effect ? "in force" : "for now: the change follows"}`;

/** Fields of a form by the key of the setting. Those that are texts take "none", too. */
const FIELDS = {
  shares: { label: "Shares", hint: "those of its VMs", of: Number },
  latency_target: { label: "Latency target", hint: "10ms, or none", of: String },
  limit: { label: "Limit", hint: "iops 500, bandwidth 40MiB, or none", of: limitOf },
  reservation: { label: "Reservation, IO/s", hint: "400, or none", of: numberOf },
};

type Key = keyof typeof FIELDS;

interface SettingsFormProps {
  at: string;
  settings: Record<string, unknown>;
  keys: Key[];
}

/** A form of some settings. One that is emptied is the configuration's again, and "none" takes that out. */
function SettingsForm({ at, settings, keys }: SettingsFormProps) {
  const [first] = useState(() => Object.fromEntries(keys.map((key) => [key, settingText(settings[key])])));
  return (
    <ChangeForm first={first} value={(key, text) => FIELDS[key as Key].of(text)} at={at}>
      {keys.map((key) => {
        const { label, hint, of } = FIELDS[key];
        const field = { name: key, placeholder: hint, defaultValue: first[key], autoComplete: "off" };
        return (
          <label key={key}>
            {label}
            {of === Number ? <input type="number" min={1} step="any" {...field} /> : <input {...field} />}
          </label>
        );
      })}
    </ChangeForm>
  );
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
      <Settings volume={volume} of={disk} state={state} />
      <SettingsForm at={place(volume.name, "disks", disk.key)} settings={{ ...disk.settings, shares: disk.shares }} keys={["shares", "latency_target", "limit", "reservation"]} />
    </Modal>
  );
}

interface TenantProps {
  state: State;
  volume: Volume;
  tenant: Tenant;
  close: () => void;
}

export function TenantDialog({ state, volume, tenant, close }: TenantProps) {
  return (
    <Modal title={`Tenant ${tenant.name}`} close={close}>
      <p class="soft">This changes this host alone. A tenant needs the same settings on all hosts: change each, or the policy.</p>
      <Settings volume={volume} of={tenant} state={state} />
      <SettingsForm at={place(volume.name, "tenants", tenant.name)} settings={tenant.settings} keys={["shares", "limit", "reservation"]} />
    </Modal>
  );
}

interface SteeredProps {
  state: State;
  volume: Volume;
  vm: SteeredVm;
  close: () => void;
}

export function SteeredDialog({ state, volume, vm, close }: SteeredProps) {
  const [of = vm.name] = vm.name.split("/");
  return (
    <Modal title={vm.name} close={close}>
      {of !== vm.name && <p class="soft">VMs of {of} have their settings together: this changes those of each.</p>}
      <Settings volume={volume} of={vm} state={state} />
      <SettingsForm at={place(volume.name, "disks", of)} settings={{ ...vm.settings, shares: vm.shares }} keys={["shares", "limit"]} />
    </Modal>
  );
}

const MODES = ["parda", "published", "observe", "off"];

export function VolumeDialog({ volume, close }: { volume: Volume; close: () => void }) {
  const [first] = useState({
    latency_threshold: volume.threshold.from === "auto" ? "auto" : `${volume.threshold.ms}ms`,
    mode: volume.mode,
  });
  const modes = MODES.includes(first.mode) ? MODES : [first.mode, ...MODES];
  return (
    <Modal title={`Volume ${volume.name}`} close={close}>
      <p class="soft">
        This changes this host alone. Hosts with another threshold are named on all hosts: change the configuration of each.
      </p>
      <ChangeForm first={first} at={place(volume.name)}>
        <label>
          Latency threshold
          <input name="latency_threshold" defaultValue={first.latency_threshold} placeholder="30ms or auto" required autoComplete="off" />
        </label>
        <label>
          Mode
          <select name="mode" defaultValue={first.mode}>
            {modes.map((mode) => (
              <option key={mode} selected={mode === first.mode}>
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
