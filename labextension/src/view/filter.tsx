import type { TranslationBundle } from '@jupyterlab/translation';
import { InputGroup } from '@jupyterlab/ui-components';
import * as React from 'react';

interface IFilterProps {
  trans: TranslationBundle;
  text: string;
  onChange: (text: string) => void;
}

/** One filter for all lists: each word must occur. */
export function Filter(props: IFilterProps): React.ReactElement {
  const { trans, text, onChange } = props;
  return (
    <div className="jp-GpuRelease-filter">
      <InputGroup
        type="search"
        placeholder={trans.__('Filter the lists')}
        title={trans.__(
          'Words that must all occur: user, node, GPU, notebook, state'
        )}
        aria-label={trans.__('Filter the lists')}
        value={text}
        onChange={event => onChange(event.currentTarget.value)}
        onKeyDown={event => {
          if (event.key === 'Escape' && text) {
            event.stopPropagation();
            onChange('');
          }
        }}
        rightIcon="ui-components:search"
      />
    </div>
  );
}
