import * as React from 'react';
import { createRoot, Root } from 'react-dom/client';
import { ITreeItem, Tree } from '../src/view/list/tree';

const rows = (): ITreeItem[] =>
  ['a', 'b', 'c'].map((key, n) => ({
    key,
    level: 1,
    height: 20,
    setSize: 3,
    posInSet: n + 1
  }));

describe('Tree', () => {
  // as in a browser: nothing is flushed before its time
  const scope = globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean };
  let root: Root;
  let box: HTMLElement;

  const draw = (word: string): Promise<void> => {
    const drawn = new Promise<void>(resolve =>
      new MutationObserver(() => resolve()).observe(box, {
        attributes: true,
        childList: true,
        subtree: true
      })
    );
    root.render(
      <Tree
        label="rows"
        items={rows()}
        spoken={({ key }) => `${key} ${word}`}
        draw={() => null}
        onToggle={() => undefined}
      />
    );
    return drawn;
  };
  const focused = () => document.activeElement!.getAttribute('aria-label');
  const press = (key: string) =>
    document.activeElement!.dispatchEvent(
      new KeyboardEvent('keydown', { key, bubbles: true })
    );

  beforeEach(() => {
    scope.IS_REACT_ACT_ENVIRONMENT = false;
    box = document.body.appendChild(document.createElement('div'));
    root = createRoot(box);
  });
  afterEach(() => {
    root.unmount();
    box.remove();
    scope.IS_REACT_ACT_ENVIRONMENT = true;
  });

  it('moves the focus with every key, also right after news were drawn', async () => {
    await draw('before');
    box.querySelector<HTMLElement>('[role=treeitem]')!.focus();
    await draw('after'); // its passive effects are still to come
    press('ArrowDown');
    await Promise.resolve(); // React draws after a key at the end of its task
    expect(focused()).toBe('b after');
    press('ArrowDown');
    await Promise.resolve();
    expect(focused()).toBe('c after');
  });
});
