// Types of the agent's HTTP API, made from its OpenAPI description: UPDATE_WEB=1 cargo test -p parda-http.

export type Changed = {
  all_shares: number | null;
  disk: string | null;
  settings: ChangedSetting[];
  tenant: string | null;
  volume: string;
};

export type ChangedSetting = {
  before: unknown;
  configured: unknown;
  from: ValueFrom;
  in_force: unknown;
  setting: string;
  took_effect: boolean;
};

export type Disk = DiskRates & {
  client_faults: number;
  clients: number;
  drain: boolean;
  errors: number;
  fault: string | null;
  from: ValueFrom;
  guest_faults: number;
  key: string;
  latency_target_ms: number | null;
  limits: DiskLimits;
  listen: string;
  name: string;
  settings: Record<string, unknown>;
  settings_from: Record<string, ValueFrom>;
  shares: number;
  shares_from: ValueFrom;
  slice: number | null;
  state: string;
};

export type DiskDone = {
  disk: string;
  from: ValueFrom;
  state: string | null;
  volume: string;
};

export type DiskHistory = {
  bytes_per_s: (number | null)[];
  device_ms: (number | null)[];
  held_ms: (number | null)[];
  iops: (number | null)[];
  outstanding: (number | null)[];
  slice: (number | null)[];
};

export type DiskLimits = {
  burst: number;
};

export type DiskRates = {
  bytes_per_s: number | null;
  device_ms: number | null;
  device_p99_ms: number | null;
  entitled_iops: number | null;
  held_ms: number | null;
  iops: number | null;
  limited_by: null | Limit;
  of_share: number | null;
  outstanding: number | null;
  reads_per_s: number | null;
  waiting: number | null;
  writes_per_s: number | null;
};

export type Drain = {
  drain: boolean;
  keep: null | Keep;
};

export type Drained = {
  disks: DrainedDisk[];
  volume: string;
};

export type DrainedDisk = {
  clients: number;
  disk: string;
  drain: boolean;
};

export type Event = {
  at_ms: number;
  disk: string | null;
  host: string | null;
  id: number;
  kind: string;
  message: string;
  severity: Severity;
  volume: string | null;
};

export type Events = {
  events: Event[];
  last_id: number;
  lost: number;
  started_ms: number;
};

export type Exchange = {
  fault: string | null;
  one_way: string[];
  period_s: number | null;
  place: string;
  silence: string | null;
  slowed: string | null;
};

export type History = {
  disks: Record<string, DiskHistory>;
  hosts: Record<string, HostHistory>;
  start_ms: number;
  step_ms: number;
  volume: VolumeHistory;
};

export type Host = {
  active_shares: number;
  age_s: number;
  asks_ms: number | null;
  auto: boolean;
  bytes_per_s: number | null;
  doubt: string | null;
  ignored: boolean;
  iops: number | null;
  latency_ms: number | null;
  latency_threshold_ms: number | null;
  limited_by: null | Limit;
  liveness: string;
  name: string;
  of_share: number | null;
  outstanding: number;
  own: boolean;
  per_share: number | null;
  shares: number;
  slowed_to_s: number | null;
  window: number | null;
  would_be: number | null;
};

export type HostHistory = {
  iops: (number | null)[];
  latency_ms: (number | null)[];
  window: (number | null)[];
};

export type HttpPlace = {
  address: string;
  fault: string | null;
  up: boolean;
};

export type Keep = "state" | "until_restart";

export type Limit = "nothing done" | "flushes, trims" | "its slice" | "window_max" | "its limit" | "its own depth";

export type NewDisk = {
  keep: null | Keep;
};

export type Outsider = {
  factor: number;
  latency_ms: number;
  outstanding: number;
  part: number;
  periods: number;
  state: OutsiderState;
  usual_ms: number;
};

export type OutsiderState = "slower" | "outsider" | "below-knee";

export type PatternWithoutVm = {
  cgroup: string;
  vm: string;
  why: string;
};

export type Policy = {
  at_ms: number | null;
  by: string | null;
  fault: string | null;
  revision: number;
  volumes: VolumePolicy[];
};

export type Problem = {
  error: string;
};

export type Role = "read" | "write" | "admin";

export type SettingsChange = {
  keep: null | Keep;
};

export type Severity = "info" | "warning" | "error";

export type State = {
  host: string;
  http: HttpPlace[];
  now_ms: number;
  pages: string | null;
  pid: number;
  policy: null | Policy;
  reload_refused: string | null;
  role: Role;
  uptime_s: number;
  version: string;
  volumes: Volume[];
};

export type Steer = {
  depth: number | null;
  device: string;
  fault: string | null;
  patterns_without_vm: PatternWithoutVm[];
  vms: SteeredVm[];
  vms_without_pattern: VmWithoutPattern[];
};

export type SteeredVm = {
  bytes_per_s: number | null;
  cgroup: string;
  iops: number | null;
  key: string;
  limited_by: null | Limit;
  name: string;
  pending: number;
  settings: Record<string, unknown>;
  settings_from: Record<string, ValueFrom>;
  shares: number;
  shares_from: ValueFrom;
};

export type Tenant = {
  iops: number;
  limit_part: number | null;
  name: string;
  own_iops: number;
  settings: Record<string, unknown>;
  settings_from: Record<string, ValueFrom>;
  short: boolean;
};

export type Threshold = {
  from: ValueFrom;
  ms: number;
  objective_of: string | null;
};

export type ThresholdCost = {
  factor: number;
  latency_ms: number;
};

export type ValueFrom = "default" | "configuration" | "policy" | "live" | "state" | "auto" | "objective";

export type VmWithoutPattern = {
  cgroup: string;
  name: string | null;
  why: string | null;
};

export type Volume = {
  active_shares: number;
  beta: number;
  bytes_per_s: number | null;
  disks: Disk[];
  exchange: null | Exchange;
  fault: string | null;
  held: number;
  hosts: Host[];
  ignored: string[];
  iops: number | null;
  latency_ms: number | null;
  mode: string;
  name: string;
  outsider: null | Outsider;
  outstanding: number;
  own_latency_ms: number | null;
  pool: string | null;
  settings_from: Record<string, ValueFrom>;
  shares: number;
  source: string;
  steer: null | Steer;
  tenants: Tenant[];
  threshold: Threshold;
  threshold_cost: null | ThresholdCost;
  window: number | null;
  window_max: number | null;
};

export type VolumeHistory = {
  bytes_per_s: (number | null)[];
  held: (number | null)[];
  iops: (number | null)[];
  latency_ms: (number | null)[];
  outstanding: (number | null)[];
  own_latency_ms: (number | null)[];
  threshold_ms: (number | null)[];
  window: (number | null)[];
};

export type VolumePolicy = {
  fault: string | null;
  in_force: number | null;
  name: string;
  unknown: string[];
};
