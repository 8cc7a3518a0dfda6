const ROW = '[role=treeitem]';
const FOCUSABLE = `${ROW}[tabindex="0"], button:not([disabled]), input, [tabindex="0"]`;

/**
 * Keeps the focus in the panel when what has it goes (the button of a row that ends, a filter, a section), and gives it
 * back when a menu is closed.
 */
export class FocusMemory {
  constructor(private _panel: HTMLElement) {
    _panel.addEventListener('focusin', this);
    _panel.addEventListener('focusout', this);
    this._observer.observe(_panel, { childList: true, subtree: true });
  }

  dispose(): void {
    this._panel.removeEventListener('focusin', this);
    this._panel.removeEventListener('focusout', this);
    this._observer.disconnect();
  }

  handleEvent(event: FocusEvent): void {
    const target = event.target as HTMLElement;
    if (event.type === 'focusin') {
      this._path = pathTo(target, this._panel);
      this._top = target.closest<HTMLElement>(ROW)?.offsetTop ?? 0;
    } else if (!event.relatedTarget) {
      // some browsers say so of what is removed as well, while it is there
      queueMicrotask(() => target.isConnected && this._forget(target));
    } else if (!this._panel.contains(event.relatedTarget as Node)) {
      this._path = [];
      const menu = (event.relatedTarget as HTMLElement).closest('.lm-Menu');
      menu && giveBack(target, menu);
    }
  }

  private _forget(target: HTMLElement): void {
    if (this._path[0] === target && document.activeElement !== target) {
      this._path = [];
    }
  }

  private _mend(): void {
    if (this._path.length === 0 || this._path[0].isConnected) {
      return;
    }
    const left = this._path.filter(element => element.isConnected);
    this._path = [];
    if (document.activeElement === document.body) {
      const row = left.find(element => element.matches(ROW));
      const near = row ?? left.map(each => this._nearest(each)).find(Boolean);
      near?.focus();
    }
  }

  /** The row in its place, what else can be reached there, or the title of a section that is empty now. */
  private _nearest(element: HTMLElement): HTMLElement | null {
    const rows = [...element.querySelectorAll<HTMLElement>(ROW)];
    const away = (row: HTMLElement) => Math.abs(row.offsetTop - this._top);
    rows.sort((a, b) => away(a) - away(b));
    const title = element.previousElementSibling;
    return (
      rows[0] ??
      element.querySelector<HTMLElement>(FOCUSABLE) ??
      (title?.matches(FOCUSABLE) ? (title as HTMLElement) : null)
    );
  }

  /** what has the focus, and all around it up to the panel; empty: nothing in the panel has it */
  private _path: HTMLElement[] = [];
  private _top = 0;
  private _observer = new MutationObserver(() => this._mend());
}

/** Lumino leaves the focus nowhere when a menu is closed. */
function giveBack(target: HTMLElement, menu: Element): void {
  const observer = new MutationObserver(() => {
    if (menu.isConnected) {
      return;
    }
    observer.disconnect();
    if (document.activeElement === document.body) {
      target.focus();
    }
  });
  observer.observe(document.body, { childList: true });
}

function pathTo(target: HTMLElement, panel: HTMLElement): HTMLElement[] {
  const path = [];
  for (
    let at: HTMLElement | null = target;
    at !== null;
    at = at === panel ? null : at.parentElement
  ) {
    path.push(at);
  }
  return path;
}
