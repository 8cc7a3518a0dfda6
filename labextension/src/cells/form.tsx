import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import { HTMLSelect, InputGroup } from '@jupyterlab/ui-components';
import * as React from 'react';
import { IChoices, IPriceList } from '../model/types';
import { ISnapshot } from '../model/snapshot';
import { Problems, problemsOf } from './check';
import { IEstimate } from './estimate';
import { IMagicLine, IMagicOptions, writeMagic } from './magic';
import { priceOf } from './price';

/** What the form offers: the cluster's real choices. */
export interface IOffer {
  mostGpus: number;
  freeGpus: number;
  types: string[];
  queues: string[];
  /** named environments */
  environments: string[];
  /** options of `%%gpu_train`; null: not known */
  options: readonly string[] | null;
  /** null: there are no rates */
  prices: IPriceList | null;
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
    environments: known.environments ?? [],
    options: known.options ?? null,
    prices: known.prices ?? null
  };
}

/** selects whose words do not say enough */
const WITH_HINT: readonly (keyof IMagicOptions)[] = ['keep', 'restartable'];

interface IFieldProps {
  id: string;
  label: string;
  hint?: string;
  problem?: string;
  children: React.ReactNode;
}

function Field(props: IFieldProps): React.ReactElement {
  const { id, problem } = props;
  return (
    <div className={`jp-GpuRelease-field${problem ? ' jp-mod-wrong' : ''}`}>
      <label htmlFor={id}>{props.label}</label>
      {props.children}
      {problem ? (
        <small id={`${id}-hint`} role="alert">
          {problem}
        </small>
      ) : (
        props.hint && <small id={`${id}-hint`}>{props.hint}</small>
      )}
    </div>
  );
}

interface IFormProps {
  line: IMagicLine;
  offer: IOffer;
  trans: TranslationBundle;
  onChange: (options: IMagicOptions, problems: Problems) => void;
  /** asks the kernel what the cell with this line would send; none: it cannot be asked */
  estimate?: (line: IMagicLine) => Promise<IEstimate>;
}

/** GPUs, memory, type, queue … of one cell, and the line that this makes. */
export function MagicForm(props: IFormProps): React.ReactElement {
  const { offer, trans, line } = props;
  const [options, setOptions] = React.useState(line.options);
  const check = (checked: IMagicOptions) =>
    problemsOf({ ...line, options: checked }, offer.mostGpus, trans);
  const problems = check(options);
  const change = (name: keyof IMagicOptions, value: string) => {
    const changed = { ...options, [name]: value };
    setOptions(changed);
    props.onChange(changed, check(changed));
  };
  const offers = (name: string) => offer.options?.includes(name) ?? true;
  const select = (
    name: keyof IMagicOptions,
    first: string,
    words: string[],
    labels: Record<string, string> = {}
  ) => (
    <HTMLSelect
      id={`jp-gpu-${name}`}
      value={options[name]}
      aria-invalid={problems[name] ? true : undefined}
      aria-describedby={
        problems[name] || WITH_HINT.includes(name)
          ? `jp-gpu-${name}-hint`
          : undefined
      }
      onChange={event => change(name, event.currentTarget.value)}
    >
      <option value="">{first}</option>
      {[...new Set([...words, options[name]].filter(Boolean))].map(word => (
        <option key={word} value={word}>
          {labels[word] ?? word}
        </option>
      ))}
    </HTMLSelect>
  );
  const input = (
    name: keyof IMagicOptions,
    placeholder: string,
    type = 'text',
    isOff = false
  ) => (
    <InputGroup
      disabled={isOff}
      id={`jp-gpu-${name}`}
      aria-describedby={`jp-gpu-${name}-hint`}
      aria-invalid={problems[name] ? true : undefined}
      type={type}
      min={type === 'number' ? 0 : undefined}
      placeholder={placeholder}
      value={options[name]}
      onChange={event => change(name, event.currentTarget.value)}
    />
  );
  const field = (
    name: keyof IMagicOptions,
    label: string,
    child: React.ReactNode,
    hint?: string
  ) => (
    <Field
      id={`jp-gpu-${name}`}
      label={label}
      hint={hint}
      problem={problems[name]}
    >
      {child}
    </Field>
  );
  const free = trans.__('%1 of %2 free now', offer.freeGpus, offer.mostGpus);
  const first = Object.keys(problems)[0] as keyof IMagicOptions | undefined;
  const preview = writeMagic('', { ...line, options }).trim();
  const price = offer.prices && priceOf(options, offer.prices, trans);
  const isOneProcess = ['', '1'].includes(options.ranks.trim());
  return (
    <div className="jp-GpuRelease-form">
      {field('gpus', trans.__('GPUs'), input('gpus', '1', 'number'), free)}
      {offers('ranks') &&
        field(
          'ranks',
          trans.__('Processes'),
          input('ranks', '1', 'number'),
          trans.__('the GPUs are divided among them')
        )}
      {offers('min-gpus') &&
        field(
          'min-gpus',
          trans.__('Fewest GPUs'),
          input(
            'min-gpus',
            trans.__('all of them'),
            'number',
            isOneProcess && !options['min-gpus']
          ),
          isOneProcess
            ? trans.__('for several processes only')
            : trans.__('begins with so many where no more are free')
        )}
      {offers('nodes') &&
        field(
          'nodes',
          trans.__('Nodes'),
          input('nodes', '1'),
          trans.__('a number, or any: wherever there is room')
        )}
      {offers('min-gpu-memory') &&
        field(
          'min-gpu-memory',
          trans.__('Memory per GPU'),
          input('min-gpu-memory', trans.__('any')),
          trans.__('at least; for example 40GiB')
        )}
      {offers('gpu-type') &&
        (offer.types.length > 0 || line.options['gpu-type'] !== '') &&
        field(
          'gpu-type',
          trans.__('GPU type'),
          select('gpu-type', trans.__('any'), offer.types)
        )}
      {offers('environment') &&
        (offer.environments.length > 0 || line.options.environment !== '') &&
        field(
          'environment',
          trans.__('Environment'),
          select(
            'environment',
            trans.__('the notebook’s packages'),
            [...offer.environments, 'cluster'],
            { cluster: trans.__('the cluster’s own packages') }
          )
        )}
      {offers('async') &&
        field(
          'mode',
          trans.__('While it runs'),
          select('mode', trans.__('the cell waits'), ['async', 'detach'], {
            async: trans.__('the kernel is free'),
            detach: trans.__('the notebook may be closed')
          })
        )}
      {offers('timeout') &&
        field(
          'timeout',
          trans.__('Time limit'),
          input('timeout', trans.__('none')),
          trans.__('for example 2h; what it made so far comes back')
        )}
      {offers('restartable') &&
        field(
          'restartable',
          trans.__('If others need GPUs'),
          select('restartable', trans.__('it keeps its own'), ['yes'], {
            yes: trans.__('it may be preempted')
          }),
          trans.__('preempted: it is saved, and resumed later')
        )}
      {offers('retries') &&
        field(
          'retries',
          trans.__('Tries again'),
          input('retries', '0', 'number'),
          trans.__('when a node fails; never after an error of the code')
        )}
      {offers('name') &&
        field(
          'name',
          trans.__('Name'),
          input('name', trans.__('none')),
          trans.__('in lists of runs')
        )}
      {offers('queue') &&
        (offer.queues.length > 1 || line.options.queue !== '') &&
        field(
          'queue',
          trans.__('Queue'),
          select('queue', trans.__('default'), offer.queues)
        )}
      {offers('priority') &&
        field(
          'priority',
          trans.__('Priority'),
          select('priority', trans.__('normal'), ['low', 'high'])
        )}
      {offers('keep') &&
        field(
          'keep',
          trans.__('Keep GPUs afterwards'),
          select('keep', trans.__('no'), ['auto', '30s', '5m']),
          trans.__('auto: until somebody waits, at most 5 minutes')
        )}
      {props.estimate && (
        <Estimate
          key={preview}
          ask={() => props.estimate!({ ...line, options })}
          isPossible={!first}
          trans={trans}
        />
      )}
      <div className="jp-GpuRelease-formFoot">
        <code className="jp-GpuRelease-preview" aria-live="polite">
          {preview}
        </code>
        {price && (
          <div className="jp-GpuRelease-price" role="status">
            {trans.__('price: %1', price)}
          </div>
        )}
        {first && (
          <div className="jp-GpuRelease-why" role="status">
            {trans.__('It cannot be added yet: look at the marked field.')}
          </div>
        )}
      </div>
    </div>
  );
}

interface IEstimateProps {
  ask: () => Promise<IEstimate>;
  isPossible: boolean;
  trans: TranslationBundle;
}

/** What would be sent, and when it would start, asked before anything runs. */
function Estimate(props: IEstimateProps): React.ReactElement {
  const { trans } = props;
  const [answer, setAnswer] = React.useState<IEstimate | null>(null);
  const [isAsking, setIsAsking] = React.useState(false);
  const shown = React.useRef<HTMLPreElement>(null);
  React.useEffect(() => {
    shown.current?.scrollIntoView?.({ block: 'nearest' });
  }, [answer]);
  const ask = () => {
    setIsAsking(true);
    void props
      .ask()
      .then(setAnswer, (error: Error) =>
        setAnswer({ text: error.message, isProblem: true })
      )
      .finally(() => setIsAsking(false));
  };
  return (
    <div className="jp-GpuRelease-estimate">
      <button
        type="button"
        className="jp-GpuRelease-button jp-mod-word"
        disabled={isAsking || !props.isPossible}
        onClick={ask}
      >
        {isAsking ? trans.__('Asking the kernel…') : trans.__('What is sent?')}
      </button>
      {answer && (
        <pre
          ref={shown}
          className={answer.isProblem ? 'jp-mod-wrong' : ''}
          role={answer.isProblem ? 'alert' : 'status'}
          tabIndex={0}
        >
          {answer.text}
        </pre>
      )}
    </div>
  );
}

type BodyProps = Omit<IFormProps, 'onChange'>;

class FormBody
  extends ReactWidget
  implements Dialog.IBodyWidget<IMagicOptions>
{
  constructor(private _props: BodyProps) {
    super();
    this._options = _props.line.options;
    const { line, offer, trans } = _props;
    this._problems = problemsOf(line, offer.mostGpus, trans);
  }

  getValue(): IMagicOptions {
    return this._options;
  }

  protected render(): JSX.Element {
    return (
      <MagicForm
        {...this._props}
        onChange={(options, problems) => {
          this._options = options;
          this._problems = problems;
          this._mark();
        }}
      />
    );
  }

  protected override onUpdateRequest(message: Message): void {
    super.onUpdateRequest(message);
    void this.renderPromise?.then(() => this._mark());
  }

  /** The dialog switches its buttons by the validity of its inputs, which it reads at each `input` event. */
  private _mark(): void {
    for (const field of this.node.querySelectorAll('input, select')) {
      const name = field.id.replace('jp-gpu-', '') as keyof IMagicOptions;
      const control = field as HTMLInputElement | HTMLSelectElement;
      control.setCustomValidity(this._problems[name] ?? '');
    }
    this.node.dispatchEvent(new Event('input', { bubbles: true }));
  }

  private _options: IMagicOptions;
  private _problems: Problems;
}

/** What the user wants: the line in the cell, the same and run it, a plain cell, or nothing (null). */
export interface IAnswer {
  line: IMagicLine;
  then: 'add' | 'run' | 'plain';
}

/** Ask for the options of a cell. `isGpuCell`: it can be made a plain one again. */
export async function askForMagic(
  props: BodyProps,
  isGpuCell: boolean
): Promise<IAnswer | null> {
  const { trans, line } = props;
  const plain = Dialog.createButton({
    label: trans.__('Make it a plain cell'),
    accept: false
  });
  const add = Dialog.createButton({
    label: isGpuCell ? trans.__('Change') : trans.__('Add to cell')
  });
  const run = Dialog.okButton({
    label: isGpuCell ? trans.__('Change and run') : trans.__('Add and run')
  });
  const buttons = [
    Dialog.cancelButton(),
    ...(isGpuCell ? [plain] : []),
    add,
    run
  ];
  const answer = await showDialog({
    title: trans.__('Run this cell on a GPU'),
    body: new FormBody(props),
    buttons,
    defaultButton: buttons.length - 1,
    focusNodeSelector: '#jp-gpu-gpus'
  });
  if (answer.button.label === plain.label) {
    return { line, then: 'plain' };
  }
  if (!answer.button.accept || !answer.value) {
    return null;
  }
  const then = answer.button.label === run.label ? 'run' : 'add';
  return { line: { ...line, options: answer.value }, then };
}
