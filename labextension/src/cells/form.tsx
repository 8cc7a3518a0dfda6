import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { HTMLSelect, InputGroup } from '@jupyterlab/ui-components';
import * as React from 'react';
import { IChoices } from '../model/types';
import { ISnapshot } from '../model/snapshot';
import { IMagicLine, IMagicOptions, writeMagic } from './magic';

/** What the form offers: the cluster's real choices. */
export interface IOffer {
  mostGpus: number;
  freeGpus: number;
  types: string[];
  queues: string[];
  /** options of `%%gpu_train`; null: not known */
  options: readonly string[] | null;
}

/** The choices from what the server tells, or from the nodes that are seen. */
export function offerOf(snapshot: ISnapshot): IOffer {
  const { choices, counts, hosts } = snapshot;
  const names = hosts.flatMap(host => host.gpus.map(gpu => gpu.name));
  const seen = [...new Set(names.filter(Boolean))].sort();
  const known: IChoices = choices;
  return {
    mostGpus: known.max_gpus ?? counts.total,
    freeGpus: counts.free,
    types: known.gpu_types ?? seen,
    queues: known.queues ?? [],
    options: known.options ?? null
  };
}

interface IFieldProps {
  id: string;
  label: string;
  hint?: string;
  children: React.ReactNode;
}

function Field(props: IFieldProps): React.ReactElement {
  return (
    <div className="jp-GpuRelease-field">
      <label htmlFor={props.id}>{props.label}</label>
      {props.children}
      {props.hint && <small id={`${props.id}-hint`}>{props.hint}</small>}
    </div>
  );
}

interface IFormProps {
  line: IMagicLine;
  offer: IOffer;
  trans: TranslationBundle;
  onChange: (options: IMagicOptions) => void;
}

/** GPUs, memory, type, queue … of one cell, and the line that this makes. */
export function MagicForm(props: IFormProps): React.ReactElement {
  const { offer, trans, line } = props;
  const [options, setOptions] = React.useState(line.options);
  const change = (name: keyof IMagicOptions, value: string) => {
    const changed = { ...options, [name]: value };
    setOptions(changed);
    props.onChange(changed);
  };
  const offers = (name: keyof IMagicOptions) =>
    offer.options?.includes(name) ?? true;
  const select = (
    name: keyof IMagicOptions,
    first: string,
    words: string[]
  ) => (
    <HTMLSelect
      id={`jp-gpu-${name}`}
      value={options[name]}
      onChange={event => change(name, event.currentTarget.value)}
    >
      <option value="">{first}</option>
      {[...new Set([...words, options[name]].filter(Boolean))].map(word => (
        <option key={word} value={word}>
          {word}
        </option>
      ))}
    </HTMLSelect>
  );
  const free = trans.__('%1 of %2 free now', offer.freeGpus, offer.mostGpus);
  return (
    <div className="jp-GpuRelease-form">
      <Field id="jp-gpu-gpus" label={trans.__('GPUs')} hint={free}>
        <InputGroup
          id="jp-gpu-gpus"
          aria-describedby="jp-gpu-gpus-hint"
          type="number"
          min={0}
          max={offer.mostGpus || undefined}
          placeholder="1"
          value={options.gpus}
          onChange={event => change('gpus', event.currentTarget.value)}
        />
      </Field>
      {offers('min-gpu-memory') && (
        <Field
          id="jp-gpu-min-gpu-memory"
          label={trans.__('Memory per GPU')}
          hint={trans.__('at least; for example 40GiB')}
        >
          <InputGroup
            id="jp-gpu-min-gpu-memory"
            aria-describedby="jp-gpu-min-gpu-memory-hint"
            placeholder={trans.__('any')}
            value={options['min-gpu-memory']}
            onChange={event =>
              change('min-gpu-memory', event.currentTarget.value)
            }
          />
        </Field>
      )}
      {offers('gpu-type') && offer.types.length > 0 && (
        <Field id="jp-gpu-gpu-type" label={trans.__('GPU type')}>
          {select('gpu-type', trans.__('any'), offer.types)}
        </Field>
      )}
      {offers('queue') && offer.queues.length > 1 && (
        <Field id="jp-gpu-queue" label={trans.__('Queue')}>
          {select('queue', trans.__('default'), offer.queues)}
        </Field>
      )}
      {offers('priority') && (
        <Field id="jp-gpu-priority" label={trans.__('Priority')}>
          {select('priority', trans.__('normal'), ['low', 'high'])}
        </Field>
      )}
      {offers('keep') && (
        <Field
          id="jp-gpu-keep"
          label={trans.__('Keep GPUs afterwards')}
          hint={trans.__('auto: until somebody waits, at most 5 minutes')}
        >
          {select('keep', trans.__('no'), ['auto', '30s', '5m'])}
        </Field>
      )}
      <code className="jp-GpuRelease-preview" aria-live="polite">
        {writeMagic('', { ...line, options }).trim()}
      </code>
    </div>
  );
}

class FormBody
  extends ReactWidget
  implements Dialog.IBodyWidget<IMagicOptions>
{
  constructor(private _props: Omit<IFormProps, 'onChange'>) {
    super();
    this._options = _props.line.options;
  }

  getValue(): IMagicOptions {
    return this._options;
  }

  protected render(): JSX.Element {
    return (
      <MagicForm
        {...this._props}
        onChange={options => (this._options = options)}
      />
    );
  }

  private _options: IMagicOptions;
}

/** Ask for the options of a cell. `run`: the user wants to run it at once. Null: he has changed his mind. */
export async function askForMagic(
  line: IMagicLine,
  offer: IOffer,
  trans: TranslationBundle
): Promise<{ line: IMagicLine; run: boolean } | null> {
  const add = Dialog.createButton({ label: trans.__('Add to cell') });
  const run = Dialog.okButton({ label: trans.__('Add and run') });
  const answer = await showDialog({
    title: trans.__('Run this cell on a GPU'),
    body: new FormBody({ line, offer, trans }),
    buttons: [Dialog.cancelButton(), add, run],
    defaultButton: 2,
    focusNodeSelector: '#jp-gpu-gpus'
  });
  if (!answer.button.accept || !answer.value) {
    return null;
  }
  return {
    line: { ...line, options: answer.value },
    run: answer.button.label === run.label
  };
}
