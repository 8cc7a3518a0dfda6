import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { quoted } from '../cells/magic';
import { baseName, formatBytes } from '../format';
import { runLabel } from '../labels';
import { valueOf } from '../model/sweeps';
import { IRunPage, IRunSummary, waits } from '../model/types';
import { CopyButton } from './copy';
import { formatMoment, momentsOf } from './times';

const MOST_LISTED = 50;

interface ISectionProps {
  page: IRunPage;
  trans: TranslationBundle;
}

/** A titled part of the page. */
export function Section(props: {
  title: string;
  tools?: React.ReactNode;
  children: React.ReactNode;
}): React.ReactElement {
  return (
    <section className="jp-GpuRelease-part">
      <div className="jp-GpuRelease-partHead">
        <h2>{props.title}</h2>
        {props.tools}
      </div>
      {props.children}
    </section>
  );
}

/** When it was queued, began, ended, let go. */
export function Times({ page, trans }: ISectionProps): React.ReactElement {
  return (
    <Section title={trans.__('Times')}>
      <dl className="jp-GpuRelease-pairs">
        {momentsOf(page, trans).map(({ label, at, note }) => (
          <React.Fragment key={label}>
            <dt>{label}</dt>
            <dd title={new Date(at * 1000).toString()}>
              {formatMoment(at, page.now)}
              {note && <span className="jp-mod-quiet"> {note}</span>}
            </dd>
          </React.Fragment>
        ))}
      </dl>
    </Section>
  );
}

/** Of each time it was on GPUs before: why that ended, and what it cost. */
export function Earlier({
  page,
  trans
}: ISectionProps): React.ReactElement | null {
  const earlier = page.run.earlier ?? [];
  if (earlier.length === 0) {
    return null;
  }
  const title = waits(page.run.state)
    ? trans.__('Goes on later')
    : trans._n('Went on once', 'Went on %1 times', earlier.length);
  return (
    <Section title={title}>
      <ol className="jp-GpuRelease-values jp-GpuRelease-earlier">
        {earlier.map((words, index) => (
          <li key={index}>{words}</li>
        ))}
      </ol>
    </Section>
  );
}

/** Of a trial: the page of its sweep, and its value. */
export function SweepLink(
  props: ISectionProps & { onOpen: (run: string) => void }
): React.ReactElement | null {
  const { trans, onOpen } = props;
  const { run } = props.page;
  const { sweep } = run;
  if (!sweep || sweep === run.run) {
    return null;
  }
  const [metric] = Object.keys(run.metric ?? {});
  return (
    <Section title={trans.__('Sweep')}>
      <a
        href="#"
        title={sweep}
        onClick={event => {
          event.preventDefault();
          onOpen(sweep);
        }}
      >
        {trans.__('All its trials')}
      </a>
      {metric && ` · ${metric}=${valueOf(run)}`}
    </Section>
  );
}

/** What its code may have imported, with versions; of edited files it has none. */
function packagesOf({ environment }: IRunPage): string {
  return Object.entries(environment.packages ?? {})
    .filter(([, version]) => version !== 'absent')
    .map(([name, version]) => [name, version.split(' ')[0]])
    .map(words => words.filter(word => !word.includes(':')).join(' '))
    .sort()
    .join(', ');
}

/** What was built for it, by the operator's name and by its digest. */
function environmentOf({ environment, options }: IRunPage): string {
  const digest = environment.digest ?? '';
  return [options.environment, digest.slice(0, 12)].filter(Boolean).join(' · ');
}

/** Facts about where it runs or ran. */
export function Place({ page, trans }: ISectionProps): React.ReactElement {
  const { run } = page;
  const simulated = trans.__('simulated GPU');
  const pairs: [string, string][] = [
    [trans.__('User'), run.user],
    [trans.__('From'), run.origin ?? ''],
    [trans.__('Notebook'), run.notebook],
    [
      trans.__('GPUs'),
      [String(run.gpus), run.gpu_name || (run.simulated ? simulated : '')]
        .filter(Boolean)
        .join(' × ')
    ],
    [trans.__('Nodes'), (run.hosts ?? []).join(', ')],
    [trans.__('Python'), page.environment.python ?? ''],
    [trans.__('Environment'), environmentOf(page)],
    [trans.__('Packages'), packagesOf(page)]
  ];
  const known = pairs.filter(([, value]) => value !== '');
  return (
    <Section title={trans.__('Where')}>
      <dl className="jp-GpuRelease-pairs">
        {known.map(([name, value]) => (
          <React.Fragment key={name}>
            <dt>{name}</dt>
            <dd title={value}>{value}</dd>
          </React.Fragment>
        ))}
      </dl>
    </Section>
  );
}

/** The options, as they are written in the cell. */
export function Options({
  page,
  trans
}: ISectionProps): React.ReactElement | null {
  const options = Object.entries(page.options);
  if (options.length === 0) {
    return null;
  }
  return (
    <Section title={trans.__('Options')}>
      <ul className="jp-GpuRelease-options">
        {options.map(([name, value]) => (
          <li key={name}>
            <code>{`--${name}${value ? ` ${quoted(value)}` : ''}`}</code>
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** The cell's code, highlighted as JupyterLab does it. */
export function Code(
  props: ISectionProps & { rendermime: IRenderMimeRegistry }
): React.ReactElement | null {
  const { page, trans, rendermime } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const { code } = page;
  React.useEffect(() => {
    const host = box.current;
    if (!host || !code) {
      return;
    }
    const shown = rendermime.createRenderer('text/markdown');
    void shown.renderModel(
      rendermime.createModel({ data: { 'text/markdown': fenced(code) } })
    );
    Widget.attach(shown, host);
    return () => {
      Widget.detach(shown);
      shown.dispose();
    };
  }, [code, rendermime]);
  if (!code) {
    return null;
  }
  const copy = (
    <CopyButton label={trans.__('Copy code')} text={code} trans={trans} />
  );
  return (
    <Section title={trans.__('Code')} tools={copy}>
      <div
        ref={box}
        className="jp-GpuRelease-code"
        role="region"
        aria-label={trans.__('Code')}
        tabIndex={0}
      />
    </Section>
  );
}

/** The code as a block of Markdown that nothing in it can end. */
export function fenced(code: string): string {
  const longest = (code.match(/`+/g) ?? []).reduce(
    (most, ticks) => Math.max(most, ticks.length),
    2
  );
  const fence = '`'.repeat(longest + 1);
  return `${fence}python\n${code.replace(/\n+$/, '')}\n${fence}`;
}

/** What it was made from, what came of it, and what used that. */
export function Lineage(
  props: ISectionProps & { onOpen: (run: string) => void }
): React.ReactElement | null {
  const { page, trans, onOpen } = props;
  const known = new Map(page.runs.map(run => [run.run, run]));
  const link = (run: string) => (
    <RunLink run={run} summary={known.get(run)} trans={trans} onOpen={onOpen} />
  );
  const { results } = page.run;
  const users = page.links.filter(({ source }) => source === page.run.run);
  return (
    <>
      {(page.inputs.length > 0 || page.tracked.length > 0) && (
        <Section title={trans.__('Made from')}>
          <ul className="jp-GpuRelease-values">
            {page.inputs.slice(0, MOST_LISTED).map(input => (
              <li key={input.name}>
                <Value {...input} />
                {input.run && (
                  <>
                    {' '}
                    {trans.__('of')} {link(input.run)}
                  </>
                )}
              </li>
            ))}
            {page.tracked.slice(0, MOST_LISTED).map(file => (
              <li key={file.path}>
                <code>{file.path}</code>
                <span className="jp-mod-quiet"> {formatBytes(file.bytes)}</span>
              </li>
            ))}
            <Rest
              count={page.inputs.length + page.tracked.length}
              trans={trans}
            />
          </ul>
        </Section>
      )}
      {results.length > 0 && (
        <Section title={trans.__('Results')}>
          <ul className="jp-GpuRelease-values">
            {results.slice(0, MOST_LISTED).map(result => (
              <li key={result.name}>
                <Value {...result} />
              </li>
            ))}
            <Rest count={results.length} trans={trans} />
          </ul>
        </Section>
      )}
      {(users.length > 0 || page.reused > 0) && (
        <Section title={trans.__('Used by')}>
          <ul className="jp-GpuRelease-values">
            {users.slice(0, MOST_LISTED).map(user => (
              <li key={`${user.run}/${user.name}`}>
                {link(user.run)}{' '}
                <span className="jp-mod-quiet">
                  {trans.__('as')} <code>{user.name}</code>
                </span>
              </li>
            ))}
            <Rest count={users.length} trans={trans} />
            {page.reused > 0 && (
              <li>
                {trans._n(
                  'its results were bound again once',
                  'its results were bound again %1 times',
                  page.reused
                )}
              </li>
            )}
          </ul>
        </Section>
      )}
    </>
  );
}

function Value(value: {
  name: string;
  type: string;
  bytes?: number;
}): React.ReactElement {
  const size = value.bytes ? ` · ${formatBytes(value.bytes)}` : '';
  return (
    <>
      <code>{value.name}</code>
      <span className="jp-mod-quiet">{` ${value.type}${size}`}</span>
    </>
  );
}

function Rest(props: {
  count: number;
  trans: TranslationBundle;
}): React.ReactElement | null {
  const more = props.count - MOST_LISTED;
  return more > 0 ? <li>{props.trans.__('and %1 more', more)}</li> : null;
}

/** A link to another run's page; a run that is no longer known is only named. */
function RunLink(props: {
  run: string;
  summary: IRunSummary | undefined;
  trans: TranslationBundle;
  onOpen: (run: string) => void;
}): React.ReactElement {
  const { run, summary, trans } = props;
  if (summary?.is_known === false) {
    return <code title={trans.__('no longer known')}>{run}</code>;
  }
  const notebook = summary?.notebook ? baseName(summary.notebook) : '';
  const name = summary?.name || notebook || run;
  const state = summary?.state ? runLabel(trans, summary.state) : '';
  return (
    <a
      href="#"
      title={[run, state].filter(Boolean).join(' · ')}
      onClick={event => {
        event.preventDefault();
        props.onOpen(run);
      }}
    >
      {name}
    </a>
  );
}

/** The files of its folder, to be downloaded. */
export function Files(
  props: ISectionProps & { urlOf: (path: string) => string }
): React.ReactElement | null {
  const { page, trans } = props;
  if (page.files.length === 0) {
    return null;
  }
  return (
    <Section title={trans.__('Files')}>
      <ul className="jp-GpuRelease-values">
        {page.files.map(({ path, bytes }) => (
          <li key={path}>
            <a
              href={props.urlOf(path)}
              download={baseName(path)}
              title={trans.__('Download %1', path)}
            >
              {path}
            </a>
            <span className="jp-mod-quiet"> {formatBytes(bytes ?? 0)}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}
