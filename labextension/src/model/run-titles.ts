import { baseName } from '../format';

interface INamed {
  run: string;
  name?: string;
  notebook?: string;
}

/** What a run is called in a row. */
export function titleOf(run: INamed): string {
  return run.name || (run.notebook && baseName(run.notebook)) || run.run;
}
