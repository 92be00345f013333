// Events of the agent, the newest first.

import type { Event } from "./api";
import { clock } from "./format";

const SHOWN = 100;

export function Events({ events }: { events: Event[] }) {
  const newest = events.slice(-SHOWN).toReversed();
  return (
    <section class="panel">
      <h2>Events</h2>
      {newest.length === 0 && <p class="soft none">None since the agent started.</p>}
      <ol class="events" tabIndex={0} aria-label="Events, the newest first">
        {newest.map((event) => (
          <li key={`${event.at_ms} ${event.id}`} class={event.severity}>
            <time dateTime={new Date(event.at_ms).toISOString()}>{clock(event.at_ms)}</time>
            <strong>{event.severity}</strong>
            <span>
              {[event.volume, event.disk ?? event.host].filter(Boolean).join(" / ")} {event.message}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}
