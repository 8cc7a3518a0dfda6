import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  Dialog,
  ICommandPalette,
  Notification,
  ReactWidget,
  showDialog
} from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { InputGroup } from '@jupyterlab/ui-components';
import * as React from 'react';
import { sentenceOf } from '../model/api';
import { INotifyChange, INotifyDocument } from '../model/types';
import { CommandIDs, IGpus } from '../tokens';

/** What was told last, by one way. */
export function lastTold(
  trans: TranslationBundle,
  document: INotifyDocument
): string[] {
  return document.deliveries.map(({ channel, at, error }) => {
    const when = new Date(at * 1000).toLocaleString();
    const way = channel === 'mail' ? trans.__('mail') : trans.__('webhook');
    return error
      ? trans.__('The last %1 (%2) failed: %3', way, when, error)
      : trans.__('The last %1 (%2) was taken.', way, when);
  });
}

interface INotifyFormProps {
  document: INotifyDocument;
  trans: TranslationBundle;
  /** what is not saved yet, and why the server refused it */
  initial?: INotifyChange;
  problem?: string;
  onChange: (change: INotifyChange) => void;
}

/** Address, webhook and events of one user; a webhook that is set is not shown, only its host. */
export function NotifyForm(props: INotifyFormProps): React.ReactElement {
  const { document, trans, problem } = props;
  const [change, setChange] = React.useState(props.initial ?? {});
  const set = (more: INotifyChange) => {
    const changed = { ...change, ...more };
    setChange(changed);
    props.onChange(changed);
  };
  const hosts = document.webhook_hosts.join(', ');
  return (
    <div className="jp-GpuRelease-form">
      {document.mail_from && (
        <div className="jp-GpuRelease-field">
          <label htmlFor="jp-gpu-notify-email">{trans.__('E-mail')}</label>
          <InputGroup
            id="jp-gpu-notify-email"
            type="email"
            aria-describedby="jp-gpu-notify-email-hint"
            value={change.email ?? document.email}
            onChange={event => set({ email: event.currentTarget.value.trim() })}
          />
          <small id="jp-gpu-notify-email-hint">
            {trans.__('sent by %1; empty: no mails', document.mail_from)}
          </small>
        </div>
      )}
      {hosts && (
        <div className="jp-GpuRelease-field">
          <label htmlFor="jp-gpu-notify-webhook">{trans.__('Webhook')}</label>
          <InputGroup
            id="jp-gpu-notify-webhook"
            type="password"
            autoComplete="off"
            aria-describedby="jp-gpu-notify-webhook-hint"
            placeholder={
              document.webhook && change.webhook !== ''
                ? trans.__('one on %1 is set', document.webhook)
                : 'https://…'
            }
            value={change.webhook ?? ''}
            onChange={event =>
              set({ webhook: event.currentTarget.value.trim() || undefined })
            }
          />
          <small id="jp-gpu-notify-webhook-hint">
            {trans.__('a secret address on %1, such as Slack gives you', hosts)}
          </small>
          {document.webhook && (
            <Check
              id="jp-gpu-notify-no-webhook"
              label={trans.__('No longer tell the webhook')}
              isSet={change.webhook === ''}
              onSet={isSet => set({ webhook: isSet ? '' : undefined })}
            />
          )}
        </div>
      )}
      <fieldset className="jp-GpuRelease-checks">
        <legend>{trans.__('When a detached run')}</legend>
        <Check
          id="jp-gpu-notify-starts"
          label={trans.__('starts after waiting')}
          isSet={change.starts ?? document.starts}
          onSet={starts => set({ starts })}
        />
        <Check
          id="jp-gpu-notify-pauses"
          label={trans.__('is preempted for another, or is lost and goes on')}
          isSet={change.pauses ?? document.pauses}
          onSet={pauses => set({ pauses })}
        />
        <Check
          id="jp-gpu-notify-ends"
          label={trans.__('ends')}
          isSet={change.ends ?? document.ends}
          onSet={ends => set({ ends })}
        />
      </fieldset>
      {problem ? (
        <p className="jp-GpuRelease-refusal" role="alert">
          {problem}
        </p>
      ) : (
        lastTold(trans, document).map(line => <small key={line}>{line}</small>)
      )}
    </div>
  );
}

interface ICheckProps {
  id: string;
  label: string;
  isSet: boolean;
  onSet: (isSet: boolean) => void;
}

function Check({ id, label, isSet, onSet }: ICheckProps): React.ReactElement {
  return (
    <label htmlFor={id} className="jp-GpuRelease-check">
      <input
        id={id}
        type="checkbox"
        checked={isSet}
        onChange={event => onSet(event.currentTarget.checked)}
      />
      {label}
    </label>
  );
}

class NotifyBody
  extends ReactWidget
  implements Dialog.IBodyWidget<INotifyChange>
{
  constructor(
    private _document: INotifyDocument,
    private _trans: TranslationBundle,
    private _change: INotifyChange,
    private _problem: string
  ) {
    super();
  }

  getValue(): INotifyChange {
    return this._change;
  }

  protected render(): JSX.Element {
    return (
      <NotifyForm
        document={this._document}
        trans={this._trans}
        initial={this._change}
        problem={this._problem}
        onChange={change => {
          this._change = change;
        }}
      />
    );
  }
}

/** Ask until it is saved or given up; null: given up. */
async function ask(
  { api, trans }: IGpus,
  document: INotifyDocument
): Promise<{ saved: INotifyDocument; isTested: boolean } | null> {
  const test = Dialog.createButton({ label: trans.__('Save and send a test') });
  let change: INotifyChange = {};
  let problem = '';
  for (;;) {
    const answer = await showDialog({
      title: trans.__('Tell %1 of detached runs', document.user),
      body: new NotifyBody(document, trans, change, problem),
      buttons: [
        Dialog.cancelButton(),
        test,
        Dialog.okButton({ label: trans.__('Save') })
      ]
    });
    if (!answer.button.accept || !answer.value) {
      return null;
    }
    change = answer.value;
    try {
      const saved = await api.changeNotify(change);
      return { saved, isTested: answer.button.label === test.label };
    } catch (error) {
      problem = sentenceOf(error);
    }
  }
}

async function change(gpus: IGpus): Promise<void> {
  const { api, trans } = gpus;
  const document = await api.notify();
  if (!document.mail_from && !document.webhook_hosts.length) {
    Notification.info(
      trans.__(
        'This cluster sends neither mails nor to webhooks; its operator can change that (JUPYTER_GPU_NOTIFY).'
      )
    );
    return;
  }
  const answer = await ask(gpus, document);
  if (answer?.isTested) {
    const after = await api.testNotify();
    const failed = after.deliveries.some(({ error }) => error);
    const told = lastTold(trans, after).join(' ');
    Notification.emit(told, failed ? 'error' : 'success', {
      autoClose: failed ? false : 5000
    });
  }
}

export const notifyPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:notify',
  description: 'Sets how one is told of detached runs: by mail and webhooks.',
  autoStart: true,
  requires: [IGpus],
  optional: [ICommandPalette],
  activate: (
    { commands }: JupyterFrontEnd,
    gpus: IGpus,
    palette: ICommandPalette | null
  ) => {
    const { trans } = gpus;
    const command = CommandIDs.notify;
    commands.addCommand(command, {
      label: trans.__('Tell Me of Detached Runs…'),
      caption: trans.__('By mail, Slack or another webhook'),
      execute: () =>
        change(gpus).catch((error: unknown) => {
          Notification.error(sentenceOf(error), { autoClose: false });
        })
    });
    palette?.addItem({ command, category: trans.__('GPUs') });
  }
};
