import * as React from 'react';

/** Which items are opened (or closed); `toggle` changes one. */
export function useToggled(): [ReadonlySet<string>, (key: string) => void] {
  const [keys, setKeys] = React.useState<ReadonlySet<string>>(new Set());
  const toggle = React.useCallback((key: string) => {
    setKeys(old => {
      const changed = new Set(old);
      if (!changed.delete(key)) {
        changed.add(key);
      }
      return changed;
    });
  }, []);
  return [keys, toggle];
}
