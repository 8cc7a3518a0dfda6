import { baseName } from '../format';

interface INamed {
  run: string;
  title?: string;
  origin?: string;
  name?: string;
  notebook?: string;
}

/** What a run is called in a row: its name, else its first line of code (which older gateways do not tell). */
export function titleOf(run: INamed): string {
  return run.title || run.name || originOf(run) || run.run;
}

/** Where a run comes from: the notebook and the cell's number, or the program that ran it. */
export function originOf(run: INamed): string {
  return run.origin || (run.notebook ? baseName(run.notebook) : '');
}
