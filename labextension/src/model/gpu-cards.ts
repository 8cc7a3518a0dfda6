import {
  CardState,
  IActiveRow,
  IGpuRow,
  IKernelRow,
  ILocalGpu,
  INodeRow,
  IRunRow
} from './types';

/** One card with everything the panel says about it. */
export interface ICard {
  key: string;
  host: string;
  index: string;
  name: string;
  uuid: string;
  memoryBytes: number;
  usedBytes: number;
  utilization: number | null;
  temperature: number | null;
  state: CardState;
  user: string;
  mine: boolean;
  run: string;
  /** what `leases/<id>/…` takes */
  lease: string;
  notebook: string;
  cell: string;
  /** seconds held when the snapshot was taken */
  heldS: number | null;
  warmUntil: number | null;
  /** id of the local kernel that holds it */
  kernel: string;
}

export interface IHost {
  id: string;
  host: string;
  up: boolean;
  notes: string[];
  cards: ICard[];
}

/** A node of the cluster; kernels of this server that hold its cards are found by UUID. */
export function hostOf(
  node: INodeRow,
  byRun: Map<string, IActiveRow>,
  own: Map<string, IRunRow>,
  local: readonly IKernelRow[],
  me: string
): IHost {
  const cards = node.gpus.map(gpu => {
    const kernel =
      gpu.state === 'running' || gpu.state === 'warm'
        ? undefined
        : holderOf(gpu.uuid, local);
    return kernel
      ? ofKernel(cardOf(node.id, node.host, gpu, me), kernel, gpu.state)
      : ofRun(cardOf(node.id, node.host, gpu, me), byRun, own);
  });
  const { id, host, up = true, notes = [] } = node;
  return { id, host, up, notes, cards };
}

function cardOf(node: string, host: string, gpu: IGpuRow, me: string): ICard {
  const user = gpu.user ?? '';
  const run = gpu.run ?? '';
  return {
    key: `${node}/${gpu.index}`,
    host,
    index: String(gpu.index),
    name: gpu.name,
    uuid: gpu.uuid,
    memoryBytes: gpu.memory_bytes,
    usedBytes: gpu.used_bytes,
    utilization: gpu.utilization,
    temperature: gpu.temperature_c ?? null,
    state: gpu.state,
    user,
    mine: user !== '' && user === me,
    run,
    lease: gpu.lease ?? run,
    notebook: gpu.notebook ?? '',
    cell: gpu.cell ?? '',
    heldS: gpu.held_s ?? null,
    warmUntil: gpu.warm_until ?? null,
    kernel: ''
  };
}

/** Say which notebook and since when, from the run that holds the card. */
function ofRun(
  card: ICard,
  byRun: Map<string, IActiveRow>,
  own: Map<string, IRunRow>
): ICard {
  const live = card.run ? byRun.get(card.run) : undefined;
  const known = card.run ? own.get(card.run) : undefined;
  return {
    ...card,
    notebook: card.notebook || live?.notebook || known?.notebook || '',
    cell: card.cell || live?.cell || known?.cell || '',
    heldS: card.heldS ?? live?.held_s ?? known?.held_s ?? null
  };
}

function holderOf(
  uuid: string,
  local: readonly IKernelRow[]
): IKernelRow | undefined {
  return uuid === ''
    ? undefined
    : local.find(kernel => kernel.gpus.some(gpu => gpu.uuid === uuid));
}

/** A card of this machine that a kernel of this server holds without a lease. */
function ofKernel(card: ICard, kernel: IKernelRow, known: CardState): ICard {
  return {
    ...card,
    state: kernel.busy
      ? 'running'
      : known === 'drained'
        ? known
        : 'idle-kernel',
    mine: true,
    kernel: kernel.id,
    notebook: kernel.path,
    heldS: kernel.busy ? null : kernel.idle_s
  };
}

/** What this machine's driver says, for when no cluster answers. */
export function localHosts(
  gpus: ILocalGpu[],
  local: readonly IKernelRow[]
): IHost[] {
  if (gpus.length === 0) {
    return [];
  }
  const cards = gpus.map(gpu => {
    const state = gpu.unattributed_bytes > 0 ? 'unattributed' : 'free';
    const row: IGpuRow = { ...gpu, index: String(gpu.index), state };
    const card = cardOf('local', '', row, '');
    const kernel = holderOf(gpu.uuid, local);
    return kernel ? ofKernel(card, kernel, state) : card;
  });
  const notes = gpus.flatMap(gpu => (gpu.problem ? [gpu.problem] : []));
  return [{ id: 'local', host: '', up: true, notes, cards }];
}
