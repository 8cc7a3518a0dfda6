import * as React from 'react';
import { positions, windowOf } from './virtual-list';

/** One row of a tree. Heights are known before anything is drawn, so only what is seen is drawn. */
export interface ITreeItem {
  key: string;
  level: 1 | 2;
  height: number;
  /** whether its details or children are shown; undefined: there are none */
  expanded?: boolean;
  setSize: number;
  posInSet: number;
}

interface ITreeProps<T extends ITreeItem> {
  label: string;
  items: readonly T[];
  /** what a screen reader says; asked only for rows that are drawn, as texts of a thousand take long */
  spoken: (item: T) => string;
  /** `isActive`: the row's buttons are in the tab order */
  draw: (item: T, isActive: boolean) => React.ReactNode;
  onToggle: (item: T) => void;
}

const HEIGHT_BEFORE_LAYOUT = 600;

/** A windowed tree with one tab stop, arrow keys, Home, End, page keys and Enter. */
export function Tree<T extends ITreeItem>(
  props: ITreeProps<T>
): React.ReactElement {
  const { items, label } = props;
  const scroller = React.useRef<HTMLDivElement>(null);
  const [scrollTop, setScrollTop] = React.useState(0);
  const height = useHeight(scroller);
  const [activeKey, setActiveKey] = React.useState('');
  const focusNext = React.useRef('');
  const tops = React.useMemo(() => positions(items), [items]);
  const [first, last] = windowOf(tops, scrollTop, height);
  const found = items.findIndex(item => item.key === activeKey);
  const active = found >= 0 ? found : Math.min(first, items.length - 1);
  const shown: number[] = [];
  for (let index = first; index < last; index++) {
    shown.push(index);
  }
  if (found >= 0 && (found < first || found >= last)) {
    shown.push(found); // what has the focus stays in the page
  }

  // not a passive effect: one of an earlier draw, run late, would take the wish and focus the row that was left
  React.useLayoutEffect(() => {
    if (focusNext.current !== '' && focusNext.current === items[active]?.key) {
      focusNext.current = '';
      scroller.current
        ?.querySelector<HTMLElement>('[role=treeitem][tabindex="0"]')
        ?.focus();
    }
  });

  const moveTo = (index: number) => {
    const to = Math.max(0, Math.min(items.length - 1, index));
    focusNext.current = items[to].key;
    setActiveKey(items[to].key);
    reveal(scroller.current, tops[to], tops[to + 1], height);
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    const target = event.target as HTMLElement;
    if (items.length === 0 || target.getAttribute('role') !== 'treeitem') {
      return;
    }
    const item = items[active];
    const page = Math.max(1, last - first - 2);
    const steps: Record<string, () => void> = {
      ArrowDown: () => moveTo(active + 1),
      ArrowUp: () => moveTo(active - 1),
      PageDown: () => moveTo(active + page),
      PageUp: () => moveTo(active - page),
      Home: () => moveTo(0),
      End: () => moveTo(items.length - 1),
      ArrowRight: () =>
        item.expanded === false ? props.onToggle(item) : undefined,
      ArrowLeft: () =>
        item.expanded ? props.onToggle(item) : moveTo(parentOf(items, active)),
      Enter: () => props.onToggle(item),
      ' ': () => props.onToggle(item)
    };
    const step = steps[event.key];
    if (step && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      event.stopPropagation();
      step();
    }
  };
  return (
    <div
      ref={scroller}
      className="jp-GpuRelease-scroller"
      onScroll={event => setScrollTop(event.currentTarget.scrollTop)}
    >
      <div
        role="tree"
        aria-label={label}
        className="jp-GpuRelease-tree"
        style={{ height: tops[items.length] }}
        onKeyDown={onKeyDown}
      >
        {shown.map(index => {
          const item = items[index];
          return (
            <div
              key={item.key}
              data-gpu-row={item.key}
              role="treeitem"
              aria-label={props.spoken(item)}
              aria-level={item.level}
              aria-setsize={item.setSize}
              aria-posinset={item.posInSet}
              aria-expanded={item.expanded}
              tabIndex={index === active ? 0 : -1}
              className="jp-GpuRelease-item"
              style={{ top: tops[index], height: item.height }}
              onFocus={() => setActiveKey(item.key)}
            >
              {props.draw(item, index === active)}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function parentOf(items: readonly ITreeItem[], index: number): number {
  let parent = index;
  while (parent > 0 && items[parent].level >= items[index].level) {
    parent -= 1;
  }
  return items[parent].level < items[index].level ? parent : index;
}

function reveal(
  scroller: HTMLElement | null,
  top: number,
  bottom: number,
  height: number
): void {
  if (!scroller) {
    return;
  }
  if (top < scroller.scrollTop) {
    scroller.scrollTop = top;
  } else if (bottom > scroller.scrollTop + height) {
    scroller.scrollTop = bottom - height;
  }
}

function useHeight(element: React.RefObject<HTMLElement>): number {
  const [height, setHeight] = React.useState(HEIGHT_BEFORE_LAYOUT);
  React.useLayoutEffect(() => {
    if (!element.current || typeof ResizeObserver === 'undefined') {
      return;
    }
    const observer = new ResizeObserver(([entry]) => {
      if (entry.contentRect.height > 0) {
        setHeight(entry.contentRect.height);
      }
    });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [element]);
  return height;
}
