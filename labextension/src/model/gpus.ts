import {
  GpuState,
  IRunRow,
  IGpuRow,
  IKernelRow,
  ILocalGpu,
  INodeRow
} from './types';

/** One GPU with everything the panel says about it. */
export interface IGpu {
  key: string;
  host: string;
  index: string;
  name: string;
  uuid: string;
  memoryBytes: number;
  usedBytes: number;
  utilization: number | null;
  temperature: number | null;
  state: GpuState;
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
  /** of one that is shared: user → part */
  parts: [string, number][];
  /** of a MIG instance: the number of its GPU */
  sliceOf: string;
}

export interface IHost {
  id: string;
  host: string;
  up: boolean;
  notes: string[];
  gpus: IGpu[];
}

/** A node of the cluster; kernels of this server that hold its GPUs are found by UUID. */
export function hostOf(
  node: INodeRow,
  byRun: Map<string, IRunRow>,
  own: Map<string, IRunRow>,
  local: readonly IKernelRow[],
  me: string
): IHost {
  const gpus = node.gpus.map(gpu => {
    const kernel =
      gpu.state === 'running' || gpu.state === 'warm'
        ? undefined
        : holderOf(gpu.uuid, local);
    return kernel
      ? ofKernel(gpuOf(node.id, node.host, gpu, me), kernel, gpu.state)
      : ofRun(gpuOf(node.id, node.host, gpu, me), byRun, own);
  });
  const { id, host, up = true, notes = [] } = node;
  return { id, host, up, notes, gpus };
}

function gpuOf(node: string, host: string, gpu: IGpuRow, me: string): IGpu {
  // of a shared one everybody sees their own part first
  const own = gpu.parts?.find(part => part.user === me) ?? gpu;
  const user = own.user ?? '';
  const run = own.run ?? '';
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
    kernel: '',
    sliceOf: gpu.slice_of ?? '',
    parts: (gpu.parts ?? []).map(part => [
      part.user === me ? 'you' : part.user,
      part.gpus
    ])
  };
}

/** Say which notebook and since when, from the run that holds the GPU. */
function ofRun(
  gpu: IGpu,
  byRun: Map<string, IRunRow>,
  own: Map<string, IRunRow>
): IGpu {
  const live = gpu.run ? byRun.get(gpu.run) : undefined;
  const known = gpu.run ? own.get(gpu.run) : undefined;
  return {
    ...gpu,
    notebook: gpu.notebook || live?.notebook || known?.notebook || '',
    cell: gpu.cell || live?.cell || known?.cell || '',
    heldS: gpu.heldS ?? sinceOf(live) ?? sinceOf(known) ?? null
  };
}

/** For how long a run has the GPUs that it has now; an older gateway tells of all that it ever had. */
function sinceOf(run?: IRunRow): number | undefined {
  return run?.since_s ?? run?.held_s;
}

function holderOf(
  uuid: string,
  local: readonly IKernelRow[]
): IKernelRow | undefined {
  return uuid === ''
    ? undefined
    : local.find(kernel => kernel.gpus.some(gpu => gpu.uuid === uuid));
}

/** A GPU of this machine that a kernel of this server holds without a lease. */
function ofKernel(gpu: IGpu, kernel: IKernelRow, known: GpuState): IGpu {
  return {
    ...gpu,
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

/** The GPU itself; of one that is divided its MIG instances, which are what can be used. */
function localRows(gpu: ILocalGpu): IGpuRow[] {
  const { mig = [], ...whole } = gpu;
  const index = String(gpu.index);
  const stateOf = (bytes: number): GpuState =>
    bytes > 0 ? 'unattributed' : 'free';
  return mig.length === 0
    ? [{ ...whole, index, state: stateOf(whole.unattributed_bytes) }]
    : mig.map(part => ({
        ...whole,
        ...part,
        name: part.name || gpu.name,
        index: part.uuid,
        slice_of: index,
        state: stateOf(part.unattributed_bytes ?? 0)
      }));
}

/** What this machine's driver says, for when no cluster answers. */
export function localHosts(
  found: ILocalGpu[],
  local: readonly IKernelRow[]
): IHost[] {
  if (found.length === 0) {
    return [];
  }
  const gpus = found.flatMap(localRows).map(row => {
    const gpu = gpuOf('local', '', row, '');
    const kernel = holderOf(row.uuid, local);
    return kernel ? ofKernel(gpu, kernel, row.state) : gpu;
  });
  const notes = found.flatMap(each => (each.problem ? [each.problem] : []));
  return [{ id: 'local', host: '', up: true, notes, gpus }];
}
