/** The line of `%%gpu_train`, read and written by the form. */

const MAGIC = '%%gpu_train';
const HAS_MAGIC = /^\s*%%gpu_train(?=\s|$)/;

/** What the form sets; empty: left to the defaults. */
export interface IMagicOptions {
  gpus: string;
  ranks: string;
  'min-gpus': string;
  nodes: string;
  'min-gpu-memory': string;
  'gpu-type': string;
  environment: string;
  timeout: string;
  name: string;
  queue: string;
  priority: string;
  keep: string;
  retries: string;
  /** `yes` or empty */
  restartable: string;
  /** `async`, `detach`, or empty: the cell waits for its end */
  mode: string;
}

type Valued = Exclude<keyof IMagicOptions, 'mode' | 'restartable'>;

export const FORM_OPTIONS: readonly Valued[] = [
  'gpus',
  'ranks',
  'min-gpus',
  'nodes',
  'min-gpu-memory',
  'gpu-type',
  'environment',
  'timeout',
  'name',
  'queue',
  'priority',
  'keep',
  'retries'
];
const RESTARTABLE = 'restartable';
const MODES = ['async', 'detach'];

export const NO_OPTIONS: IMagicOptions = {
  gpus: '',
  ranks: '',
  'min-gpus': '',
  nodes: '',
  'min-gpu-memory': '',
  'gpu-type': '',
  environment: '',
  timeout: '',
  name: '',
  queue: '',
  priority: '',
  keep: '',
  retries: '',
  restartable: '',
  mode: ''
};

export interface IMagicLine {
  options: IMagicOptions;
  /** what the form does not know, as it was written */
  rest: string[];
}

export function hasMagic(source: string): boolean {
  return HAS_MAGIC.test(source);
}

/** The line with the magic; empty: a plain cell. */
export function magicLine(source: string): string {
  return hasMagic(source) ? source.trimStart().split('\n', 1)[0] : '';
}

/** The cell without the magic's line. */
export function plainCode(source: string): string {
  if (!hasMagic(source)) {
    return source;
  }
  const code = source.trimStart();
  const end = code.indexOf('\n');
  return end < 0 ? '' : code.slice(end + 1);
}

/** The options of a cell that has the magic, else none. */
export function readMagic(source: string): IMagicLine {
  const options: IMagicOptions = { ...NO_OPTIONS };
  const rest: string[] = [];
  const line = magicLine(source).slice(MAGIC.length);
  const words = line.match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) ?? [];
  for (let i = 0; i < words.length; i++) {
    const [, asked, inline] = words[i].match(/^--([\w-]+)(?:=(.*))?$/) ?? [];
    const name = asked?.replace(/_/g, '-').toLowerCase(); // as the kernel reads it
    if (MODES.includes(name)) {
      options.mode = options.mode === 'detach' ? 'detach' : name;
    } else if (name === RESTARTABLE) {
      options.restartable = 'yes';
    } else if (!isFormOption(name)) {
      rest.push(words[i]);
    } else if (inline !== undefined) {
      options[name] = unquoted(inline);
    } else {
      options[name] = unquoted(words[i + 1] ?? '');
      i += 1;
    }
  }
  // `--gpus h100:2` says the type, too
  const [, type, gpus] = options.gpus.match(/^([^:]+):(\d+|\d*\.\d+)$/) ?? [];
  if (type && !options['gpu-type']) {
    options['gpu-type'] = type;
    options.gpus = gpus;
  }
  return { options, rest };
}

function isFormOption(name: string | undefined): name is Valued {
  return FORM_OPTIONS.some(known => known === name);
}

function unquoted(word: string): string {
  return word.replace(/^(["'])(.*)\1$/, '$2');
}

/** A value as the magic's line takes it. */
export function quoted(word: string): string {
  if (!/[\s"']/.test(word)) {
    return word;
  }
  return word.includes('"') ? `'${word.replace(/'/g, '')}'` : `"${word}"`;
}

/** The cell with the magic as the form says; the code below stays as it is. */
export function writeMagic(source: string, line: IMagicLine): string {
  const words = [MAGIC];
  for (const name of FORM_OPTIONS) {
    const value = line.options[name].trim();
    if (value) {
      words.push(`--${name}`, quoted(value));
    }
  }
  if (line.options.restartable) {
    words.push(`--${RESTARTABLE}`);
  }
  if (line.options.mode) {
    words.push(`--${line.options.mode}`);
  }
  return `${[...words, ...line.rest].join(' ')}\n${plainCode(source)}`;
}
