import { holdsGpu, IRunRow, isTerminal } from './types';

/** A run, or the trials of a sweep as one; `trials` is empty for a run that is none. */
export interface IRunGroup {
  row: IRunRow;
  trials: IRunRow[];
}

/** Each run by itself, but for the trials of a sweep, which stand where its newest stood. */
export function groupSweeps(runs: readonly IRunRow[]): IRunGroup[] {
  const groups = new Map<string, IRunRow[]>();
  for (const run of runs) {
    const key = run.sweep || run.run;
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups].map(([key, rows]) => {
    // the run that drives a detached sweep is called as that is, and no trial
    const trials = rows.filter(run => run.sweep && run.run !== key);
    const driver = rows.find(run => run.run === key);
    return trials.length
      ? { row: rowOf(key, trials, driver), trials }
      : { row: rows[0], trials: [] };
  });
}

/** Cancelling this row cancels the sweep: the gateway knows it by its id. */
function rowOf(sweep: string, trials: IRunRow[], driver?: IRunRow): IRunRow {
  const unended = trials.filter(trial => !isTerminal(trial.state));
  const isDriven = driver && !isTerminal(driver.state);
  const living = unended.length || !isDriven ? unended : [driver];
  const holding = living.filter(trial => holdsGpu(trial.state));
  const well = trials.filter(trial => trial.state === 'succeeded');
  const shown = [holding, living, well, trials].find(some => some.length)!;
  const gpus = holding.reduce((sum, trial) => sum + trial.gpus, 0);
  return {
    ...shown[0],
    run: sweep,
    title: trials[0].name.replace(/ \d+$/, ''),
    gpus: gpus || shown[0].gpus || trials[0].gpus,
    held_s: trials.reduce((sum, trial) => sum + trial.held_s, 0),
    detached: driver !== undefined
  };
}

/** When the first of these trials had its GPUs, or else was submitted. */
export function beganAt(trials: readonly IRunRow[]): number {
  const granted = trials.flatMap(trial => trial.granted_at ?? []);
  const submitted = trials.map(trial => trial.submitted_at);
  return Math.min(...(granted.length ? granted : submitted));
}

/** A trial's parameters as its call has them: `lr=0.1, width=64`. */
export function parametersOf({ title, name }: IRunRow): string {
  return title?.startsWith(`${name}(`)
    ? title.slice(name.length + 1).replace(/\)$/, '')
    : '';
}

/** The value that a trial's sweep searches for, as `%g` writes it; empty: it has none. */
export function valueOf({ metric }: IRunRow): string {
  const [value] = Object.values(metric ?? {});
  return value === undefined ? '' : String(Number(value.toPrecision(6)));
}
