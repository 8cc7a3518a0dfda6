import type { Kernel, KernelMessage } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { magicLine, plainCode } from './magic';

/** What `--estimate` says of a cell: tables as text, or why there are none. */
export interface IEstimate {
  text: string;
  isProblem: boolean;
}

/** Ask the notebook's kernel; nothing is run, kept or counted. */
export async function estimate(
  kernel: Kernel.IKernelConnection | null | undefined,
  source: string,
  trans: TranslationBundle
): Promise<IEstimate> {
  const problem = (text: string): IEstimate => ({ text, isProblem: true });
  if (!kernel) {
    return problem(trans.__('The notebook has no kernel: start one first.'));
  }
  if (kernel.status !== 'idle') {
    return problem(
      trans.__('The kernel is %1: ask again when it is idle.', kernel.status)
    );
  }
  const shown: string[] = [];
  const future = kernel.requestExecute({
    code: `${magicLine(source)} --estimate\n${plainCode(source)}`,
    silent: true,
    store_history: false,
    stop_on_error: false,
    allow_stdin: false
  });
  future.onIOPub = message => {
    const text = textOf(message);
    if (text) {
      shown.push(text);
    }
  };
  const { content } = await future.done;
  if (content.status === 'error') {
    return problem(content.evalue || content.ename);
  }
  return shown.length > 0
    ? { text: shown.join('\n'), isProblem: false }
    : problem(trans.__('This kernel does not know %%gpu_train.'));
}

function textOf(message: KernelMessage.IIOPubMessage): string {
  if (message.header.msg_type === 'display_data') {
    const { data } = (message as KernelMessage.IDisplayDataMsg).content;
    const text = data['text/plain'];
    return Array.isArray(text) ? text.join('') : String(text ?? '');
  }
  if (message.header.msg_type === 'stream') {
    return (message as KernelMessage.IStreamMsg).content.text.trim();
  }
  return '';
}
