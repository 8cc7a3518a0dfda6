import {
  IRunRow,
  IChoices,
  IClusterStart,
  IKernelRow,
  IKernelsDocument,
  IProblem,
  IQueueShare,
  IServerStatus,
  IUsageFacts,
  isTerminal,
  waits
} from './types';
import { hostOf, IGpu, IHost, localHosts } from './gpus';
import { sumGpus } from './holders';

export interface ICounts {
  total: number;
  free: number;
  held: number;
  external: number;
  waiting: number;
  mine: number;
}

/** Why the panel shows what it shows. */
export type Situation =
  | 'loading'
  | 'ready'
  | 'no-gpu'
  | 'no-cluster'
  | 'gateway-down'
  | 'refused'
  | 'not-permitted'
  | 'not-enabled'
  | 'offline';

/** Everything that the views show, taken at one moment. */
export interface ISnapshot {
  /** when the gateway said it: Unix seconds by the browser's clock */
  at: number;
  situation: Situation;
  message: string;
  mend: string;
  /** how old it all is, in seconds: the gateway is silent since then */
  staleS: number;
  /** seconds until the server tries the gateway again */
  nextTryS: number;
  me: string;
  isAdmin: boolean;
  mayAct: boolean;
  simulated: boolean;
  cluster: string;
  /** whether what is shown is the cluster's; else it is this machine's only */
  isClusterKnown: boolean;
  counts: ICounts;
  hosts: IHost[];
  queue: IRunRow[];
  /** the tree of queues, each behind the one above it; only leaves take runs */
  queues: IQueueShare[];
  active: IRunRow[];
  runs: IRunRow[];
  kernels: IKernelRow[];
  usage: IUsageFacts | null;
  choices: IChoices;
  /** of this machine's own cluster, while there is none */
  start: IClusterStart | null;
  problems: IProblem[];
}

const NO_COUNTS: ICounts = {
  total: 0,
  free: 0,
  held: 0,
  external: 0,
  waiting: 0,
  mine: 0
};

/** What is known before the first answer. */
export const NOTHING: ISnapshot = {
  at: 0,
  situation: 'loading',
  message: '',
  mend: '',
  nextTryS: 0,
  staleS: 0,
  me: '',
  isAdmin: false,
  mayAct: false,
  simulated: false,
  cluster: '',
  isClusterKnown: false,
  counts: NO_COUNTS,
  hosts: [],
  queue: [],
  queues: [],
  active: [],
  runs: [],
  kernels: [],
  usage: null,
  choices: {},
  start: null,
  problems: []
};

/** Put the server's answers together. Pure: `now` is in Unix seconds; `known`: who asked before the cluster went away. */
export function takeSnapshot(
  status: IServerStatus,
  runs: readonly IRunRow[],
  kernels: IKernelsDocument | null,
  now: number,
  known = ''
): ISnapshot {
  const cluster = status.cluster;
  const me = cluster?.user ?? known;
  // the server tells each her own; without a cluster nobody says who that is
  const own = runs.filter(run => !me || run.user === me);
  const local = kernels?.kernels.filter(kernel => kernel.gpus.length > 0) ?? [];
  const active = cluster?.runs ?? [];
  const byRun = new Map(active.map(row => [row.run, row]));
  const ownByRun = new Map(own.map(run => [run.run, run]));
  const hosts = cluster
    ? cluster.nodes.map(node => hostOf(node, byRun, ownByRun, local, me))
    : localHosts(status.gpus, local);
  const counts = countsOf(status, hosts, me);
  const isStale = cluster && status.gateway.state === 'unreachable';
  const ageS = cluster ? (status.gateway.age_s ?? 0) : 0;
  const staleS = isStale ? ageS : 0;
  return {
    at: now - ageS,
    situation: situationOf(status, counts.total),
    message: status.gateway.message ?? '',
    mend: status.gateway.mend ?? '',
    staleS,
    nextTryS: status.gateway.next_try_s ?? 0,
    me,
    isAdmin: cluster?.role === 'admin',
    mayAct: status.may_act ?? true,
    simulated: cluster?.simulated ?? false,
    cluster: clusterName(status),
    isClusterKnown: cluster !== null && cluster !== undefined,
    counts,
    hosts,
    queue: cluster?.queue ?? [],
    queues: cluster?.queues ?? [],
    active,
    runs: freshRuns(own, byRun),
    kernels: local,
    usage: status.usage ?? null,
    choices: status.choices ?? {},
    start: status.start ?? null,
    problems: status.problems ?? []
  };
}

function situationOf(status: IServerStatus, total: number): Situation {
  switch (status.gateway.state) {
    case 'none':
      return 'no-cluster';
    case 'unreachable':
      return 'gateway-down';
    case 'refused':
      return 'refused';
    default:
      return status.cluster && total === 0 ? 'no-gpu' : 'ready';
  }
}

function clusterName(status: IServerStatus): string {
  const nodes = status.cluster?.nodes ?? [];
  const url = status.gateway.url ?? status.cluster?.gateway.url ?? '';
  const host = url.replace(/^\w+:\/\//, '').replace(/[:/].*$/, '');
  const isLocal = ['127.0.0.1', 'localhost', '[', ''].includes(host);
  return isLocal && nodes.length > 0 ? nodes[0].host : host;
}

/** How much of a GPU I hold. */
function ownShare(gpu: IGpu): number {
  const own = gpu.parts.filter(([user]) => user === 'you');
  return own.length > 0 ? sumGpus(own.map(([, part]) => part)) : +gpu.mine;
}

function countsOf(status: IServerStatus, hosts: IHost[], me: string): ICounts {
  const gpus = hosts.flatMap(host => host.gpus);
  const mine = sumGpus(gpus.filter(gpu => gpu.state !== 'free').map(ownShare));
  const cluster = status.cluster;
  if (cluster) {
    const waiting = Math.max(cluster.queue_total ?? 0, cluster.queue.length);
    const ownRuns = cluster.runs.filter(
      row => row.user === me && row.held_s > 0
    );
    const held = gpus.length ? mine : sumGpus(ownRuns.map(row => row.gpus));
    return { ...cluster.gpus, waiting, mine: held };
  }
  const free = gpus.filter(gpu => gpu.state === 'free').length;
  const total = gpus.length;
  return { ...NO_COUNTS, total, free, held: total - free, mine };
}

/** Own runs, live ones with their newest state, first those that go on. */
function freshRuns(
  own: readonly IRunRow[],
  byRun: Map<string, IRunRow>
): IRunRow[] {
  const rows = own.map(run => {
    const live = byRun.get(run.run);
    return live && !isTerminal(run.state)
      ? {
          ...run,
          state: live.state,
          queued_s: live.queued_s,
          held_s: live.held_s,
          since_s: live.since_s
        }
      : run;
  });
  const rank = (run: IRunRow) =>
    isTerminal(run.state) ? 2 : waits(run.state) ? 1 : 0;
  return rows.sort(
    (a, b) => rank(a) - rank(b) || b.submitted_at - a.submitted_at
  );
}
