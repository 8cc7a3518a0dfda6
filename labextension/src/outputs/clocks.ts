/** Times in our lines and receipts: written in the kernel's zone, shown in the browser's. */

const CLOCKS = 'time.jgr-clock:not(.jgr-mod-local)';
const AT = /^jgr-at-(\d+)$/;

/** The moment (Unix seconds) that a `<time>` of ours means; NaN: none. */
function momentOf(node: Element): number {
  const match = [...node.classList].map(name => AT.exec(name)).find(Boolean);
  return match ? Number(match[1]) : NaN;
}

/** Show the times within a node in the browser's zone; what was written stays as their title. */
export function showLocalTimes(root: ParentNode, now = Date.now()): void {
  for (const node of root.querySelectorAll<HTMLElement>(CLOCKS)) {
    const at = momentOf(node) * 1000;
    if (Number.isFinite(at)) {
      const moment = new Date(at);
      const isToday = moment.toDateString() === new Date(now).toDateString();
      node.title = node.textContent ?? '';
      node.classList.add('jgr-mod-local');
      node.textContent = isToday
        ? moment.toLocaleTimeString()
        : moment.toLocaleString();
    }
  }
}

/** Keep doing so within a node, whatever is drawn there; the function ends it. */
export function watchLocalTimes(root: HTMLElement): () => void {
  const observer = new MutationObserver(changes => {
    for (const { addedNodes } of changes) {
      for (const node of addedNodes) {
        if (node instanceof HTMLElement) {
          showLocalTimes(node);
        }
      }
    }
  });
  observer.observe(root, { childList: true, subtree: true });
  showLocalTimes(root);
  return () => observer.disconnect();
}
