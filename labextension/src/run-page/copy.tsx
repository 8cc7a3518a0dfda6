import { Clipboard } from '@jupyterlab/apputils';
import { checkIcon, copyIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

const SAID_MS = 2000;

interface ICopyButtonProps {
  label: string;
  text: string;
  trans: TranslationBundle;
}

/** Copies a text, and says so for a moment. */
export function CopyButton(props: ICopyButtonProps): React.ReactElement {
  const [isCopied, setCopied] = React.useState(false);
  React.useEffect(() => {
    const timer = isCopied
      ? window.setTimeout(() => setCopied(false), SAID_MS)
      : 0;
    return () => window.clearTimeout(timer);
  }, [isCopied]);
  const Image = (isCopied ? checkIcon : copyIcon).react;
  return (
    <button
      type="button"
      className="jp-GpuRelease-button jp-mod-copy"
      title={props.text.length < 100 ? props.text : props.label}
      onClick={() => {
        Clipboard.copyToSystem(props.text);
        setCopied(true);
      }}
    >
      <Image tag={null} width="14px" height="14px" />
      <span aria-live="polite">
        {isCopied ? props.trans.__('Copied') : props.label}
      </span>
    </button>
  );
}
