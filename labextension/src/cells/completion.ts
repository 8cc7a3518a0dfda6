import type {
  CompletionHandler,
  ICompletionProvider,
  ICompletionProviderManager
} from '@jupyterlab/completer';

/** JupyterLab's provider of words that stand in the editor. */
const WORDS = 'CompletionProvider:context';
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

/** In a magic's line the kernel knows what there is; words of the editor (`gpu_train`) are no options. */
export function silenceWords(
  manager: ICompletionProviderManager & IProviders
): void {
  const words = manager.getProviders?.().get(WORDS);
  if (!words) {
    return;
  }
  const fetch = words.fetch.bind(words);
  words.fetch = (request, context, trigger) =>
    isMagicLine(request)
      ? Promise.resolve({
          start: request.offset,
          end: request.offset,
          items: []
        })
      : fetch(request, context, trigger);
}
