import { PageConfig } from '@jupyterlab/coreutils';

const NAME = `jupyter-gpu-release ${PageConfig.getBaseUrl()}`;
const SEEN = `${NAME} is seen`;
const TOLD = `${NAME} told`;
const REMEMBERED_MS = 86_400_000;

/** Whether a person looks at this page. */
export function isSeen(): boolean {
  return !document.hidden && document.hasFocus();
}

/**
 * All open pages of this JupyterLab, in whichever tabs and windows: whether one of them is looked at, and what one has
 * told already. Browsers have locks and notifications alike for secure pages only.
 */
export class OpenPages {
  constructor() {
    for (const event of ['focus', 'blur']) {
      window.addEventListener(event, () => this._note());
    }
    document.addEventListener('visibilitychange', () => this._note());
    this._note();
  }

  /** Tell of an event, unless a person looks at one of the pages, or another page has told it. */
  async tellOnce(event: string, tell: () => void): Promise<void> {
    if (isSeen()) {
      return;
    }
    const { held } = await navigator.locks.query();
    if (held?.some(({ name }) => name === SEEN)) {
      return;
    }
    await navigator.locks.request(TOLD, () => {
      if (isNew(event)) {
        tell();
      }
    });
  }

  /** A page holds a lock while it is looked at: it goes with the page, however that ends. */
  private _note(): void {
    if (!isSeen()) {
      this._letGo?.();
      this._letGo = null;
    } else if (this._letGo === null) {
      const isOver = new Promise<void>(resolve => (this._letGo = resolve));
      void navigator.locks.request(SEEN, { mode: 'shared' }, () => isOver);
    }
  }

  private _letGo: (() => void) | null = null;
}

/** Whether no page has told it; from now on one has. Called by one page at a time. */
function isNew(event: string): boolean {
  const now = Date.now();
  const told = Object.entries(read()).filter(
    ([, at]) => now - at < REMEMBERED_MS
  );
  localStorage.setItem(
    TOLD,
    JSON.stringify(Object.fromEntries([...told, [event, now]]))
  );
  return told.every(([known]) => known !== event);
}

function read(): Record<string, number> {
  try {
    return JSON.parse(localStorage.getItem(TOLD) ?? '{}') as Record<
      string,
      number
    >;
  } catch {
    return {}; // somebody else wrote it
  }
}
