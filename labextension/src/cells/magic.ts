/** The line of `%%gpu_train`, read and written by the form. */

const MAGIC = '%%gpu_train';

/** What the form sets; empty: left to the defaults. */
export interface IMagicOptions {
  gpus: string;
  'min-gpu-memory': string;
  'gpu-type': string;
  queue: string;
  priority: string;
  keep: string;
}

export const FORM_OPTIONS: readonly (keyof IMagicOptions)[] = [
  'gpus',
  'min-gpu-memory',
  'gpu-type',
  'queue',
  'priority',
  'keep'
];

export const NO_OPTIONS: IMagicOptions = {
  gpus: '',
  'min-gpu-memory': '',
  'gpu-type': '',
  queue: '',
  priority: '',
  keep: ''
};

export interface IMagicLine {
  options: IMagicOptions;
  /** what the form does not know, as it was written */
  rest: string[];
}

export function hasMagic(source: string): boolean {
  return /^%%gpu_train(\s|$)/.test(source);
}

/** The options of a cell that has the magic, else none. */
export function readMagic(source: string): IMagicLine {
  const options: IMagicOptions = { ...NO_OPTIONS };
  const rest: string[] = [];
  if (!hasMagic(source)) {
    return { options, rest };
  }
  const line = source.split('\n', 1)[0].slice(MAGIC.length);
  const words = line.match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) ?? [];
  for (let i = 0; i < words.length; i++) {
    const [, name, inline] = words[i].match(/^--([\w-]+)(?:=(.*))?$/) ?? [];
    if (!isFormOption(name)) {
      rest.push(words[i]);
    } else if (inline !== undefined) {
      options[name] = inline;
    } else {
      options[name] = words[i + 1] ?? '';
      i += 1;
    }
  }
  return { options, rest };
}

function isFormOption(name: string | undefined): name is keyof IMagicOptions {
  return FORM_OPTIONS.some(known => known === name);
}

/** The cell with the magic as the form says; the code below stays as it is. */
export function writeMagic(source: string, line: IMagicLine): string {
  const words = [MAGIC];
  for (const name of FORM_OPTIONS) {
    const value = line.options[name].trim();
    if (value) {
      words.push(`--${name}`, /\s/.test(value) ? `"${value}"` : value);
    }
  }
  const first = [...words, ...line.rest].join(' ');
  const end = source.indexOf('\n');
  const code = hasMagic(source)
    ? end < 0
      ? ''
      : source.slice(end + 1)
    : source;
  return `${first}\n${code}`;
}
