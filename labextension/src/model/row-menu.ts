import { gpuTarget, ITarget, runTarget } from './actions';
import {
  Action,
  gpuActions,
  maySee,
  pinActions,
  queueActions,
  runActions
} from './permissions';
import { ISnapshot } from './snapshot';

/** What a row's menu offers: only what the user may do. */
export interface IRowMenu {
  target: ITarget;
  actions: Action[];
  /** the run that the row is about, if any */
  run: string;
  /** it is the user's own */
  isMine: boolean;
}

/** The menu of the row with this key (`run:ID`, `queue:ID`, a GPU's); null: it has none. */
export function rowMenu(key: string, snapshot: ISnapshot): IRowMenu | null {
  const [kind, id] = [key.slice(0, key.indexOf(':')), key.replace(/^\w+:/, '')];
  if (kind === 'run' || kind === 'queue') {
    return menuOfRun(key, id, snapshot);
  }
  const gpu = snapshot.hosts
    .flatMap(host => host.gpus)
    .find(each => each.key === key);
  if (!gpu) {
    return null;
  }
  const shown: Action[] =
    gpu.run !== '' && maySee(snapshot, gpu.user) ? ['show'] : [];
  const own = snapshot.runs.find(({ run }) => run === gpu.run);
  const actions = [
    ...shown,
    ...gpuActions(gpu, snapshot),
    ...(own ? pinActions(own, snapshot) : [])
  ];
  const target = gpuTarget(gpu);
  const isMine = gpu.user === snapshot.me;
  return { target, actions, run: gpu.run, isMine };
}

function menuOfRun(
  key: string,
  id: string,
  snapshot: ISnapshot
): IRowMenu | null {
  const own = snapshot.runs.find(({ run }) => run === id);
  if (own) {
    const actions: Action[] = [
      'show',
      ...runActions(own, snapshot),
      ...pinActions(own, snapshot)
    ];
    const target = { ...runTarget(own), key };
    return { target, actions, run: id, isMine: true };
  }
  const row = snapshot.queue.find(({ run }) => run === id);
  if (!row) {
    return null;
  }
  const shown: Action[] = maySee(snapshot, row.user) ? ['show'] : [];
  const actions = [...shown, ...queueActions(row, snapshot)];
  const isMine = row.user === snapshot.me;
  return { target: { key, run: id }, actions, run: id, isMine };
}
