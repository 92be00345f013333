// The agent's state, asked for once a second, with the record of the shown volume.

import { useEffect, useReducer, useRef } from "preact/hooks";

import * as api from "./api";
import { empty, extend, type Record_ } from "./record";
import { steady } from "./steady";

/** How often the agent is asked. */
const EACH_MS = 1000;

/** Disks whose record is asked for: those of the most IOs, and the one whose details are open. */
const MOST_DISKS = 8;

/** Events that are kept. */
const MOST_EVENTS = 500;

export interface Live {
  state: api.State | null;
  record: Record_;
  /** Keys of the disks that the chart of throughput shows. */
  busiest: string[];
  events: api.Event[];
  /** Why the last question had no answer. */
  fault: string | null;
  /** The agent answers those alone who have a token. */
  denied: boolean;
  /** When the last answer came, in Unix milliseconds. */
  answered_ms: number | null;
}

export interface Wanted {
  /** The first volume, if it is not named. */
  volume: string | null;
  /** Key of a disk whose record is wanted. */
  disk: string | null;
  /** Seconds of the record that are shown. */
  seconds: number;
}

/** What was asked for last: as long as it is the same, only newer seconds are asked for. */
class Follower {
  live: Live = { state: null, record: empty(), busiest: [], events: [], fault: null, denied: false, answered_ms: null };
  private of = "";
  private last = 0;
  private started = 0;
  private lastEvent = 0;

  async ask({ volume: name, disk, seconds }: Wanted): Promise<void> {
    const state = steady(await api.state(), this.live.state);
    const volume = state.volumes.find((v) => v.name === name) ?? state.volumes[0];
    const events = await this.askEvents();
    let { record, busiest } = this.live;
    if (volume) {
      busiest = stable(busiest, volume.disks);
      const disks = disk && !busiest.includes(disk) ? [...busiest, disk] : busiest;
      const hosts = volume.hosts.filter((host) => !host.own).map((host) => host.name);
      const of = JSON.stringify([state.host, volume.name, disks, hosts, seconds]);
      const whole = of !== this.of;
      if (whole) record = empty();
      const since_ms = whole ? state.now_ms - seconds * 1000 : this.last + 1;
      const answer = await api.history({ volume: volume.name, disks, hosts, since_ms });
      record = extend(record, answer, seconds);
      this.of = of;
      this.last = (record.time.at(-1) ?? 0) * 1000;
    }
    this.live = { state, record, busiest, events, fault: null, denied: false, answered_ms: Date.now() };
  }

  private async askEvents(): Promise<api.Event[]> {
    const known = this.live.events;
    const answer = await api.events(this.lastEvent);
    if (answer.started_ms !== this.started) {
      this.started = answer.started_ms;
      this.lastEvent = 0;
      // The ids of another start say nothing of this one's.
      const all = this.live.answered_ms === null ? answer : await api.events(0);
      this.lastEvent = all.last_id;
      return [...known, ...all.events].slice(-MOST_EVENTS);
    }
    this.lastEvent = answer.last_id;
    return [...known, ...answer.events].slice(-MOST_EVENTS);
  }

  failed(error: unknown): void {
    const fault = error instanceof Error ? error.message : String(error);
    const denied = error instanceof api.Refused && error.status === 401;
    this.live = { ...this.live, fault, denied };
  }
}

/** The busiest disks. One that was among them stays as long as it is nearly as busy as those that are. */
function stable(before: string[], disks: api.Disk[]): string[] {
  const weight = ({ key, iops }: api.Disk) => (before.includes(key) ? 1.5 * (iops ?? 0) + 1e-9 : (iops ?? 0));
  const sorted = disks.toSorted((a, b) => weight(b) - weight(a) || (a.key < b.key ? -1 : 1));
  const keys = sorted.slice(0, MOST_DISKS).map((disk) => disk.key);
  const same = keys.length === before.length && keys.every((key) => before.includes(key));
  return same ? before : keys;
}

/** Asks as long as the page can be seen. A change of what is wanted is asked for at once. */
export function useLive(wanted: Wanted): Live {
  const follower = useRef<Follower>(null);
  follower.current ??= new Follower();
  const [, render] = useReducer((n: number, _: void) => n + 1, 0);
  const { volume, disk, seconds } = wanted;
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let over = false;
    const again = async () => {
      const began = performance.now();
      if (!document.hidden) {
        try {
          await follower.current?.ask({ volume, disk, seconds });
        } catch (error) {
          follower.current?.failed(error);
        }
        if (over) return;
        render();
      }
      timer = setTimeout(again, Math.max(100, EACH_MS - (performance.now() - began)));
    };
    const seen = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      void again();
    };
    void again();
    document.addEventListener("visibilitychange", seen);
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [volume, disk, seconds]);
  return follower.current.live;
}
