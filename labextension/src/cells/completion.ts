import type {
  CompletionHandler,
  ICompletionContext,
  ICompletionProvider,
  ICompletionProviderManager
} from '@jupyterlab/completer';
import { Kernel, KernelMessage, Session } from '@jupyterlab/services';

/** JupyterLab's provider of words that stand in the editor. */
const WORDS = 'CompletionProvider:context';
/** Its provider of what the kernel answers. */
const KERNEL = 'CompletionProvider:kernel';
const OUR_LINE = /^\s*(?:[\w.,[\] ]+=\s*)?%{1,2}gpu_[a-z]+\s[^\n]*$/;

/** The manager has its providers, though its interface does not say so. */
interface IProviders {
  getProviders?: () => Map<string, ICompletionProvider>;
}

/** Tell if the cursor is in the line of one of our magics, behind its name. */
export function isMagicLine(request: CompletionHandler.IRequest): boolean {
  const before = request.text.slice(0, request.offset);
  return OUR_LINE.test(before.slice(before.lastIndexOf('\n') + 1));
}

/**
 * In a magic's line the kernel knows what there is: words of the editor (`gpu_train`) are no options, and the list is
 * there as soon as the kernel has answered.
 */
export function completeMagics(
  manager: ICompletionProviderManager & IProviders
): void {
  const providers = manager.getProviders?.();
  const words = providers?.get(WORDS);
  const kernel = providers?.get(KERNEL);
  if (words) {
    inMagics(words, async request => ({
      start: request.offset,
      end: request.offset,
      items: []
    }));
  }
  if (kernel) {
    const fetch = kernel.fetch.bind(kernel);
    inMagics(kernel, (request, context, trigger) =>
      fetch(request, atOnce(context), trigger)
    );
  }
}

type Fetch = ICompletionProvider['fetch'];

function inMagics(provider: ICompletionProvider, instead: Fetch): void {
  const usual = provider.fetch.bind(provider);
  provider.fetch = (request, context, trigger) =>
    (isMagicLine(request) ? instead : usual)(request, context, trigger);
}

/**
 * The same, with a kernel whose completions are there with its reply. JupyterLab waits until the kernel is idle, too,
 * and between the two lies whatever else it is asked meanwhile (by the debugger's panel).
 */
function atOnce(context: ICompletionContext): ICompletionContext {
  const session = context.session;
  if (!session?.kernel) {
    return context;
  }
  const kernel = session.kernel;
  const hasty: Kernel.IKernelConnection = Object.create(kernel, {
    requestComplete: {
      value: (content: KernelMessage.ICompleteRequestMsg['content']) =>
        replyTo(kernel, content)
    }
  });
  const own: Session.ISessionConnection = Object.create(session, {
    kernel: { value: hasty }
  });
  return { ...context, session: own };
}

/** Ask `kernel`; its reply, or the error of a kernel that is gone. */
export function replyTo(
  kernel: Kernel.IKernelConnection,
  content: KernelMessage.ICompleteRequestMsg['content']
): Promise<KernelMessage.ICompleteReplyMsg> {
  const message =
    KernelMessage.createMessage<KernelMessage.ICompleteRequestMsg>({
      msgType: 'complete_request',
      channel: 'shell',
      username: kernel.username,
      session: kernel.clientId,
      content
    });
  return new Promise((resolve, reject) => {
    const future = kernel.sendShellMessage(message, true);
    future.onReply = reply => resolve(reply as KernelMessage.ICompleteReplyMsg);
    future.done.catch(reject);
  });
}
