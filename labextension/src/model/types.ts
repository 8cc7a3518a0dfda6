/**
 * The documents of the server extension, as `jupyter_gpu_release/server_extension/models.py` writes them.
 *
 * Seconds are seconds, bytes are bytes, times are Unix seconds. Optional fields are ones that an older or simpler
 * server does not send: what they feed is then not shown.
 */

/** What can be said of a GPU, in the order in which states are listed. */
export const GPU_STATES = [
  'running',
  'warm',
  'idle-kernel',
  'unattributed',
  'drained',
  'free'
] as const;

export type GpuState = (typeof GPU_STATES)[number];

export interface IGpuRow {
  index: string;
  uuid: string;
  name: string;
  memory_bytes: number;
  used_bytes: number;
  utilization: number | null;
  state: GpuState;
  user?: string | null;
  run?: string | null;
  lease?: string | null;
  held_s?: number | null;
  notebook?: string | null;
  cell?: string | null;
  /** end of a warm lease */
  warm_until?: number | null;
  temperature_c?: number | null;
  /** of a GPU that is shared: whoever has a part of it */
  parts?: { run: string; user: string; gpus: number }[];
  /** of a MIG instance: the number of its GPU */
  slice_of?: string;
}

export interface INodeRow {
  id: string;
  host: string;
  gpus: IGpuRow[];
  up?: boolean;
  notes?: string[];
}

/** A run in a list: of those that wait, of those that are not over, of all. */
export interface IRunRow {
  run: string;
  user: string;
  /** its name, or the first line of its code */
  title?: string;
  /** where that stands: `digits.ipynb [3]`, `papermill digits.ipynb [3]`, `script fit.py` */
  origin?: string;
  state: RunState;
  gpus: number;
  ranks?: number;
  name: string;
  notebook: string;
  cell: string;
  queue: string;
  priority: string;
  simulated?: boolean;
  submitted_at: number;
  granted_at: number | null;
  running_at: number | null;
  gone_at: number | null;
  finished_at: number | null;
  queued_s: number;
  held_s: number;
  /** for so long it waits, or has the GPUs that it has now; `held_s` counts earlier ones, too */
  since_s?: number | null;
  /** of an elastic run: as many GPUs as it would have at most */
  most_gpus?: number;
  /** id of the sweep that it is a trial of */
  sweep?: string;
  release_ms: number | null;
  /** of what it has held, in words; on the page of a run or a sweep alone */
  price?: string;
  /** of a trial that went well: name of what the sweep searches for, and its value */
  metric?: Record<string, number>;
  position: number | null;
  /** seconds until it starts, probably */
  start_estimate_s?: number | null;
  reason: string;
  /** of a reason that names somebody, for programs */
  cause?: { code: string } | null;
  hosts?: string[];
  gpu_name?: string;
  results: { name: string; type: string; bytes?: number }[];
  files: { path: string; bytes?: number }[];
  /** `code`: of our own errors */
  error: {
    ename: string;
    evalue: string;
    code?: string;
    mend?: string;
  } | null;
  notes?: string[];
  detached?: boolean;
  /** last line of the cell's output */
  progress?: string;
  /** Jupyter's id of the kernel that submitted it */
  kernel?: string;
  /** that kernel is not connected now: started anew, say, under the same id */
  unattended?: boolean;
  /** its results are never removed */
  pinned?: boolean;
  /** when its results were removed (Unix seconds) */
  collected_at?: number | null;
  collected_because?: string;
  /** why its results are not on the store yet */
  waits_for?: string;
  /** when the next try to write them begins (Unix seconds), where one failed */
  next_try_at?: number | null;
  /** of each time it was on GPUs before: why that ended, what it cost */
  earlier?: string[];
  /** remarks on the use of the GPU */
  verdict?: string[];
}

/** A queue; GPUs of those below it count. */
export interface IQueueShare {
  name: string;
  /** empty at the top */
  parent: string;
  leaf: boolean;
  usable: boolean;
  guaranteed: number | null;
  max: number | null;
  used: number;
  fair_share: number;
  waiting_runs: number;
  waiting_gpus: number;
  /** of each type of GPU that it names */
  by_type?: ITypeShare[];
}

export interface ITypeShare {
  gpu_type: string;
  guaranteed: number | null;
  max: number | null;
  used: number;
  fair_share: number;
}

export type RunState =
  | 'submitted'
  | 'queued'
  | 'starting'
  | 'running'
  | 'yielding'
  | 'releasing'
  | 'persisting'
  | 'succeeded'
  | 'failed'
  | 'cancelled'
  | 'lost';

export interface IClusterStatus {
  schema_version: number;
  simulated: boolean;
  gateway: { url: string; version: string; up: boolean };
  gpus: { total: number; held: number; free: number; external: number };
  nodes: INodeRow[];
  queue: IRunRow[];
  /** Runs that wait, those that `queue` leaves out, too. */
  queue_total?: number;
  runs: IRunRow[];
  /** the tree of queues, each behind the one above it */
  queues?: IQueueShare[];
  /** what is odd about them */
  queue_notes?: string[];
  /** who asks, as the gateway knows them */
  user?: string;
  role?: string;
}

export interface IGatewayState {
  state: 'connected' | 'none' | 'unreachable' | 'refused';
  url?: string;
  message?: string;
  mend?: string;
  next_try_s?: number;
  /** seconds since the last answer */
  age_s?: number | null;
}

export interface ILocalGpu {
  index: number;
  uuid: string;
  name: string;
  memory_bytes: number;
  used_bytes: number;
  utilization: number | null;
  temperature_c?: number | null;
  unattributed_bytes: number;
  problem?: string;
  /** MIG instances of it, each of which is used as a GPU */
  mig?: IMigInstance[];
}

export interface IMigInstance {
  uuid: string;
  name?: string;
  memory_bytes: number;
  used_bytes: number;
  unattributed_bytes?: number;
}

export interface IProblem {
  what: string;
  message: string;
  mend?: string;
}

/** GPU-seconds: one GPU for one second. */
export interface IUsage {
  held_s: number;
  used_s: number;
  saved_s: number;
  /** how much of the saved others used */
  others_s?: number;
}

/** One day by the gateway's clock. */
export interface IUsageDay {
  /** its beginning, Unix seconds */
  since: number;
  own?: Partial<IUsage>;
  all?: Partial<IUsage>;
  /** GPU-seconds that the cluster could have given */
  capacity_s?: number;
}

/** The gateway's account. */
export interface IUsageFacts {
  today: IUsage;
  week: IUsage;
  all_week?: IUsage;
  /** each user's week; for administrators */
  users?: Record<string, IUsage>;
  /** the last seven days, today last */
  days?: IUsageDay[];
  /** what my runs take of the store; null: not known yet */
  stored_bytes?: number | null;
}

/** By the rates of the queues file. */
export interface IPriceList {
  /** type of GPU → price of an hour; empty: none is asked for */
  hourly: Record<string, number>;
  unit: string;
  /** the price of a run that is worth a word */
  warn_above?: number | null;
}

/** What this cluster offers to the form of "Run on GPU". */
export interface IChoices {
  queues?: string[];
  gpu_types?: string[] | null;
  max_gpus?: number | null;
  /** options of `%%gpu_train` */
  options?: string[];
  prices?: IPriceList | null;
  /** named ones that this user is offered */
  environments?: string[];
}

/** The start of this machine's own cluster through this server. */
export interface IClusterStart {
  state: 'possible' | 'starting' | 'failed' | 'refused';
  /** what it is at */
  step?: string;
  elapsed_s?: number;
  message?: string;
  mend?: string;
}

export interface IServerStatus {
  schema_version: number;
  version: string;
  gateway: IGatewayState;
  cluster: IClusterStatus | null;
  gpus: ILocalGpu[];
  problems: IProblem[];
  may_act?: boolean | null;
  usage?: IUsageFacts | null;
  choices?: IChoices | null;
  start?: IClusterStart | null;
}

/** Advice on one code cell of a notebook. */
export interface ICellAdvice {
  /** its place among the cells that were sent */
  at: number;
  number: number;
  first_line: string;
  advice: string;
  verdict: string;
  reason: string;
  sent: string[];
  back: string[];
  /** the magic's line for it */
  line: string;
  took_s: number | null;
}

/** `POST advice`. */
export interface INotebookAdvice {
  conclusion: string;
  cells: ICellAdvice[];
}

export interface IRunsDocument {
  schema_version: number;
  runs: IRunRow[];
}

export interface IKernelRow {
  id: string;
  name: string;
  path: string;
  used_bytes: number;
  gpus: { index: number; uuid: string; used_bytes: number | null }[];
  busy: boolean;
  why: string;
  idle_s: number | null;
  decision?: string;
  reason?: string;
  /** seconds until the policy acts */
  due_s?: number | null;
  kept_s?: number | null;
}

export interface IKernelsDocument {
  schema_version: number;
  gpus: ILocalGpu[];
  kernels: IKernelRow[];
  problems?: IProblem[];
}

/** What the idle policy announces (`warning`) or did (`done`), and what a person `answered`. */
export interface ICullEvent {
  phase: 'warning' | 'done' | 'answered';
  kind: 'lease' | 'kernel';
  /** of the kernel or of the lease */
  id: string;
  action: string;
  due_s: number | null;
  reason: string;
  path: string;
}

const HOLDS_GPU: readonly RunState[] = [
  'starting',
  'running',
  'yielding',
  'releasing'
];
const WAITS: readonly RunState[] = ['submitted', 'queued'];
const TERMINAL: readonly RunState[] = [
  'succeeded',
  'failed',
  'cancelled',
  'lost'
];

export function holdsGpu(state: RunState): boolean {
  return HOLDS_GPU.includes(state);
}

export function waits(state: RunState): boolean {
  return WAITS.includes(state);
}

/** For how long a run that waits has waited, since it last had GPUs. */
export function waitingS(run: {
  queued_s: number;
  since_s?: number | null;
}): number {
  return run.since_s ?? run.queued_s;
}

export function isTerminal(state: RunState): boolean {
  return TERMINAL.includes(state);
}

/** The newest run of a cell; see `CellRun` of the server. */
export interface ICellRun {
  cell: string;
  run: string;
  state: string;
  submitted_at: number;
  /** when its output was whole; null: it goes on */
  ended_at: number | null;
}

/** Use over time, in percent, a value for each `span_s` seconds. */
export interface IGpuUse {
  peak_utilization?: number | null;
  mean_utilization?: number | null;
  peak_memory_bytes?: number | null;
  total_memory_bytes?: number | null;
  utilization?: (number | null)[];
  memory?: (number | null)[];
  span_s?: number;
  since?: number;
}

export interface IUsedInput {
  name: string;
  type: string;
  bytes?: number;
  /** the run that made it */
  run?: string;
}

export interface IRunSummary {
  run: string;
  is_known?: boolean;
  state?: RunState;
  name?: string;
  notebook?: string;
}

/** All of one run; see `RunPage` of the server. */
export interface IRunPage {
  now: number;
  run: IRunRow;
  mine: boolean;
  code: string;
  options: Record<string, string>;
  started_at: number | null;
  ended_at: number | null;
  gpu_use: IGpuUse | null;
  inputs: IUsedInput[];
  tracked: { path: string; bytes: number }[];
  runs: IRunSummary[];
  links: { run: string; name: string; source: string }[];
  reused: number;
  files: { path: string; bytes?: number }[];
  environment: {
    python?: string;
    packages?: Record<string, string>;
    digest?: string;
  };
  is_cluster_known: boolean;
  /** of a sweep, in the order in which they began */
  trials: IRunRow[];
}

/** What one check found, and what to do about it. */
export interface IFinding {
  check: string;
  level: 'ok' | 'note' | 'broken';
  finding: string;
  /** empty: nothing */
  mend: string;
  /** a node, `gateway` or `server` */
  where: string;
}

export interface IReport {
  ok: boolean;
  findings: IFinding[];
}

/** The latest try to tell by one way; `error` is not there when it was taken. */
export interface INotifyDelivery {
  channel: string;
  at: number;
  run?: string;
  error?: string;
}

/** How one is told of detached runs, and what the cluster offers; of a webhook its host alone. */
export interface INotifyDocument {
  user: string;
  email: string;
  webhook: string;
  starts: boolean;
  pauses: boolean;
  ends: boolean;
  mail_from: string;
  webhook_hosts: string[];
  deliveries: INotifyDelivery[];
}

/** What is not named stays; empty text: no longer by this way. */
export interface INotifyChange {
  email?: string;
  webhook?: string;
  starts?: boolean;
  pauses?: boolean;
  ends?: boolean;
}
