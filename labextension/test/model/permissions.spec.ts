import {
  gpuActions,
  losesWork,
  queueActions,
  runActions
} from '../../src/model/permissions';
import { takeSnapshot } from '../../src/model/snapshot';
import { GpuState } from '../../src/model/types';
import { gpu, run, status } from '../samples';

const NOW = 10_000;

describe('what may be done', () => {
  const gpuOf = (state: GpuState, user: string) =>
    takeSnapshot(
      status([gpu(0, { state, user, run: 'r', notebook: 'n.ipynb' })]),
      [],
      null,
      NOW
    ).hosts[0].gpus[0];
  const ada = {
    isAdmin: false,
    mayAct: true,
    me: 'ada',
    situation: 'ready' as const
  };

  it('mine: release and extend warm ones, cancel running ones', () => {
    expect(gpuActions(gpuOf('warm', 'ada'), ada)).toEqual([
      'release',
      'extend',
      'open'
    ]);
    expect(gpuActions(gpuOf('running', 'ada'), ada)).toEqual([
      'cancel',
      'open'
    ]);
    expect(gpuActions(gpuOf('free', ''), ada)).toEqual([]);
  });

  it('others’: nothing, unless I am an administrator', () => {
    expect(gpuActions(gpuOf('warm', 'bob'), ada)).toEqual([]);
    expect(queueActions({ user: 'bob' }, ada)).toEqual([]);
    const admin = { ...ada, isAdmin: true };
    expect(gpuActions(gpuOf('warm', 'bob'), admin)).toEqual([
      'release',
      'extend'
    ]);
    expect(queueActions({ user: 'bob' }, admin)).toEqual(['cancel']);
  });

  it('nothing where the server forbids it, or the gateway is down', () => {
    const forbidden = { ...ada, mayAct: false };
    expect(gpuActions(gpuOf('warm', 'ada'), forbidden)).toEqual(['open']);
    const down = { ...ada, situation: 'gateway-down' as const };
    expect(runActions(run('r'), down)).toEqual(['open']);
  });

  it('runs: attach to what goes on, or was detached', () => {
    expect(runActions(run('r'), ada)).toEqual(['cancel', 'attach', 'open']);
    expect(runActions(run('r', { state: 'queued' }), ada)).toEqual([
      'cancel',
      'open'
    ]);
    const done = run('r', { state: 'succeeded' });
    expect(runActions(done, ada)).toEqual(['open']);
    expect(runActions({ ...done, detached: true }, ada)).toEqual([
      'attach',
      'open'
    ]);
  });

  it('work is lost only by what has begun', () => {
    expect(losesWork({ state: 'running' })).toBe(true);
    expect(losesWork({ state: 'queued' })).toBe(false);
    expect(losesWork(undefined)).toBe(false);
  });
});
