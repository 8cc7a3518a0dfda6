/** The run ids that outputs of GPU cells carry in their metadata. */

import type { ICodeCellModel } from '@jupyterlab/cells';

export type Output = ReturnType<ICodeCellModel['outputs']['toJSON']>[number];

/** A line that stands for a run which was not over when it was written. */
export interface IMark {
  run: string;
  index: number;
}

interface IOurMetadata {
  run?: unknown;
  live?: unknown;
}

function ours(output: Output): IOurMetadata {
  const metadata = output.metadata as
    { jupyter_gpu_release?: IOurMetadata } | undefined;
  return metadata?.jupyter_gpu_release ?? {};
}

/** The unfinished lines, in their order. */
export function liveMarks(outputs: readonly Output[]): IMark[] {
  const marks: IMark[] = [];
  outputs.forEach((output, index) => {
    const { run, live } = ours(output);
    if (live === true && typeof run === 'string') {
      marks.push({ run, index });
    }
  });
  return marks;
}

/** Whether an output is of that run: its line or its receipt. */
export function mentions(outputs: readonly Output[], run: string): boolean {
  return outputs.some(output => ours(output).run === run);
}

/** Whether all that follows a run's line in the cell is that run's. */
export function isOneRun(source: string): boolean {
  const code = source.trim();
  return (
    /^%%gpu_train(\s|$)/m.test(code) ||
    (/^%gpu_(train|attach)\s/.test(code) && !code.includes('\n'))
  );
}
