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
  /** how the run ended: of receipts */
  status?: unknown;
}

/** The facts that a line of ours carries. */
export function ours(output: Output): IOurMetadata {
  return oursIn(output.metadata);
}

function oursIn(metadata: unknown): IOurMetadata {
  const found = metadata as { jupyter_gpu_release?: IOurMetadata } | undefined;
  return found?.jupyter_gpu_release ?? {};
}

/** Whether there is an unfinished line; outputs, maybe of many MB, are not copied for it. */
export function hasLiveMark({ outputs }: ICodeCellModel): boolean {
  for (let index = 0; index < outputs.length; index++) {
    if (oursIn(outputs.get(index).metadata).live === true) {
      return true;
    }
  }
  return false;
}

/** Whether there is anything of a run that carries its id. */
export function hasMark({ outputs }: ICodeCellModel): boolean {
  for (let index = 0; index < outputs.length; index++) {
    if (oursIn(outputs.get(index).metadata).run !== undefined) {
      return true;
    }
  }
  return false;
}

/** The run of which a receipt stands there. */
export function runOfReceipt({ outputs }: ICodeCellModel): string | undefined {
  for (let index = outputs.length - 1; index >= 0; index--) {
    const { run, status } = oursIn(outputs.get(index).metadata);
    if (typeof run === 'string' && status !== undefined) {
      return run;
    }
  }
  return undefined;
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

/** Where the run's own output begins: its heading, its line or its receipt; -1 where there is none. */
export function indexOf(outputs: readonly Output[], run: string): number {
  return outputs.findIndex(output => ours(output).run === run);
}

/** Whether a line or a receipt is that run's; a heading alone says nothing of what follows it. */
export function mentions(outputs: readonly Output[], run: string): boolean {
  return outputs.some(
    output => ours(output).run === run && isLineOrReceipt(output)
  );
}

/** Whether a line or a receipt is another run's. */
export function isOfOthers(outputs: readonly Output[], run: string): boolean {
  return outputs.some(
    output => isLineOrReceipt(output) && ours(output).run !== run
  );
}

/** Whether it stands for a whole run, as a heading does not. */
export function isLineOrReceipt(output: Output): boolean {
  const { live, status } = ours(output);
  return live === true || status !== undefined;
}

/** The runs that stand there more than once: pages that did not hear of each other have written them. */
export function doubledRuns({ outputs }: ICodeCellModel): string[] {
  const seen = new Set<string>();
  const doubled = new Set<string>();
  for (let index = 0; index < outputs.length; index++) {
    const { metadata } = outputs.get(index);
    const { run, live, status } = oursIn(metadata);
    if (typeof run === 'string') {
      const isHeading = live !== true && status === undefined;
      const key = `${run} ${isHeading}`;
      if (seen.has(key)) {
        doubled.add(run);
      }
      seen.add(key);
    }
  }
  return [...doubled];
}

/** Whether all that follows a run's line in the cell is that run's. */
export function isOneRun(source: string): boolean {
  const code = source.trim();
  return (
    /^%%gpu_train(\s|$)/m.test(code) ||
    (/^%gpu_(train|attach)\s/.test(code) && !code.includes('\n'))
  );
}
