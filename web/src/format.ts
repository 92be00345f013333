// Numbers and settings as people read them.

import type { LimitSetting } from "./api";

export const NONE = "–";

/** Three significant digits, without exponents; a dash for what is not known. */
export function number(value: number | null | undefined): string {
  if (value == null) return NONE;
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toLocaleString("en");
  if (size >= 10) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  return size === 0 ? "0" : value.toFixed(3);
}

const MIB = 1 << 20;

export const mib = (bytes: number | null | undefined) =>
  number(bytes == null ? null : bytes / MIB);

export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return NONE;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

export const clock = (ms: number) => new Date(ms).toLocaleTimeString("en-GB");

/** A limit as a form has it: "iops 500, bandwidth 40MiB". */
const limitText = (limit: LimitSetting): string =>
  Object.entries(limit)
    .map((pair) => pair.join(" "))
    .join(", ");

/** The limit that a form has. What is none stays a text, and the agent says what it must be. */
export function limitOf(text: string): LimitSetting | string {
  const pairs = text.split(",").map((pair) => /^(\w+)(?:\s*=\s*|\s+)(.+)$/.exec(pair.trim()));
  const keys = new Set(pairs.map((pair) => pair?.[1]));
  if (pairs.includes(null) || keys.size < pairs.length) return text;
  return Object.fromEntries(pairs.map((pair) => [pair?.[1], Number.isNaN(Number(pair?.[2])) ? pair?.[2] : Number(pair?.[2])]));
}

/** The number that a form has. What is none stays a text. */
export const numberOf = (text: string): number | string => (Number.isNaN(Number(text)) ? text : Number(text));

/** A setting's value as a text. */
export const settingText = (value: unknown): string => (value == null ? "" : typeof value === "object" ? limitText(value as LimitSetting) : String(value));
