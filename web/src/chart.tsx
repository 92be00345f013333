// A chart over time.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import type { Column } from "./api";
import { COLOURS } from "./colour";
import { clock, number } from "./format";
import type { Theme } from "./theme";

export interface Line {
  label: string;
  values: Column;
  /** Index of the line's colour; the threshold has its own. */
  colour: number | "limit";
  dashed?: boolean;
  heavy?: boolean;
}

interface Props {
  title: string;
  /** A sentence for those who do not see the chart. */
  words: string;
  unit: string;
  time: number[];
  lines: Line[];
  theme: Theme;
  /** Seconds that the axis spans. */
  seconds: number;
}

const HEIGHT = 190;

/** More lines than these have no legend: it would be longer than the chart. */
const LEGEND = 10;

const style = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const colour = (line: Line) =>
  style(typeof line.colour === "number" ? `--line-${line.colour % COLOURS}` : `--${line.colour}`);

/** With seconds only where ticks are less than a minute apart. */
const timeOfDay = (at: number, [first = 0, second = 60]: number[]) =>
  clock(at * 1000).slice(0, second - first < 60 ? 8 : 5);

export function Chart({ title, words, unit, time, lines, theme, seconds }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const shape = JSON.stringify([theme, unit, seconds, lines.map((l) => [l.label, l.colour, l.dashed, l.heavy])]);

  useEffect(() => {
    const box = place.current;
    if (!box) return;
    const grid = { stroke: style("--grid"), width: 1 };
    const axis = { stroke: style("--soft"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const made = new uPlot(
      {
        width: box.clientWidth,
        height: HEIGHT,
        legend: { show: lines.length <= LEGEND, live: true },
        cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { size: 5 } },
        scales: { x: { time: true }, y: { range: (_, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, space: 64, values: (_, ticks) => ticks.map((tick) => timeOfDay(tick, ticks)) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => number(tick)) }],
        series: [
          { label: "time", value: (_, at) => (at == null ? "–" : clock(at * 1000)) },
          ...lines.map((line) => ({
            label: line.label,
            stroke: colour(line),
            width: line.heavy ? 2 : 1.25,
            ...(line.dashed ? { dash: [6, 4] } : {}),
            points: { show: false },
            spanGaps: false,
            value: (_: uPlot, value: number | null) => (value == null ? "–" : `${number(value)} ${unit}`),
          })),
        ],
      },
      [[], ...lines.map(() => [])],
      box,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => {
      if (box.clientWidth > 0) made.setSize({ width: box.clientWidth, height: HEIGHT });
    });
    watch.observe(box);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    made.setData([time, ...lines.map((line) => line.values)], false);
    const last = time.at(-1) ?? Date.now() / 1000;
    made.batch(() => {
      made.setScale("x", { min: last - seconds, max: last });
    });
  }, [time, lines, seconds, shape]);

  return (
    <figure class="chart">
      <figcaption>
        {title} <span class="soft">{unit}</span>
      </figcaption>
      <div ref={place} class="plot" role="img" aria-label={`${title}: ${words}`} />
    </figure>
  );
}
