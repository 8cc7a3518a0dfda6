import { PageConfig } from '@jupyterlab/coreutils';
import { nullTranslator } from '@jupyterlab/translation';
import { completeMagics, isMagicLine } from '../src/cells/completion';
import { problemsOf } from '../src/cells/check';
import {
  hasMagic,
  NO_OPTIONS,
  plainCode,
  readMagic,
  writeMagic
} from '../src/cells/magic';
import { isAt, serverPath } from '../src/cells/paths';

describe('magic', () => {
  it('puts the line above the code, and reads it back', () => {
    const line = readMagic('x = 1');
    line.options.gpus = '2';
    line.options['gpu-type'] = 'NVIDIA H100';
    const cell = writeMagic('x = 1', line);
    expect(cell).toBe('%%gpu_train --gpus 2 --gpu-type "NVIDIA H100"\nx = 1');
    expect(readMagic(cell).options.gpus).toBe('2');
  });

  it('keeps what the form does not know', () => {
    const cell = '%%gpu_train --out model,x --gpus=1 --fresh\ncode()';
    const line = readMagic(cell);
    expect(line.rest).toEqual(['--out', 'model,x', '--fresh']);
    line.options.gpus = '4';
    expect(writeMagic(cell, line)).toBe(
      '%%gpu_train --gpus 4 --out model,x --fresh\ncode()'
    );
  });

  it('is not fooled by names that begin alike', () => {
    const cell = '%%gpu_trainer\nx';
    expect(writeMagic(cell, readMagic(cell))).toBe(`%%gpu_train\n${cell}`);
  });
});

describe('more of the magic', () => {
  it('knows how the cell waits, and quotes what has blanks', () => {
    const cell = '%%gpu_train --name "a b" --async --out x\ny = 1';
    const line = readMagic(cell);
    expect([line.options.name, line.options.mode]).toEqual(['a b', 'async']);
    line.options.mode = 'detach';
    expect(writeMagic(cell, line)).toBe(
      '%%gpu_train --name "a b" --detach --out x\ny = 1'
    );
    line.options.name = 'the "best"';
    expect(readMagic(writeMagic(cell, line)).options.name).toBe('the "best"');
  });

  it('knows the type that stands before the number of GPUs, and the flags', () => {
    const cell =
      '%%gpu_train --gpus h100:4 --ranks 4 --min-gpus 2 --restartable --retries=2\nx';
    const line = readMagic(cell);
    expect([line.options.gpus, line.options['gpu-type']]).toEqual([
      '4',
      'h100'
    ]);
    expect(line.rest).toEqual([]);
    expect(writeMagic(cell, line)).toBe(
      '%%gpu_train --gpus 4 --ranks 4 --min-gpus 2 --gpu-type h100 --retries 2 --restartable\nx'
    );
  });

  it('reads options as the kernel does', () => {
    const { options, rest } = readMagic('%%gpu_train --gpu_type a100 --GPUS=2');
    expect([options['gpu-type'], options.gpus, rest]).toEqual([
      'a100',
      '2',
      []
    ]);
  });

  it('makes a GPU cell a plain one again', () => {
    expect(plainCode('\n%%gpu_train --gpus 2\nx = 1\ny')).toBe('x = 1\ny');
    expect(plainCode('%%gpu_train')).toBe('');
    expect(plainCode('x = 1')).toBe('x = 1');
    expect(hasMagic('# %%gpu_train\nx')).toBe(false);
  });
});

describe('completion', () => {
  it.each([
    ['%%gpu_train --g', true],
    ['x = 1\n  %gpu_cancel 2', true],
    ['y = %gpu_train --g', true],
    ['%%gpu_train', false],
    ['%%gpu_train --gpus 2\nfor i in', false]
  ])('%j is ours: %s', (text, ours) =>
    expect(isMagicLine({ text, offset: text.length })).toBe(ours)
  );

  /** JupyterLab's provider, as far as it matters: it asks the kernel of the context. */
  const provider = () => ({
    fetch: async (
      request: { text: string; offset: number },
      context: any
    ): Promise<any> => {
      const { text: code, offset: cursor_pos } = request;
      const { kernel } = context.session;
      return (await kernel.requestComplete({ code, cursor_pos })).content;
    }
  });
  /** A kernel that has answered, and is busy with something else for ever. */
  const kernel = (done = new Promise<never>(() => undefined)) => ({
    username: 'ada',
    clientId: 'client',
    requestComplete: () => Promise.resolve({ content: 'idle, too' }),
    sendShellMessage: ({ content }: any) => {
      const future: any = { done };
      void Promise.resolve().then(() => future.onReply?.({ content }));
      return future;
    }
  });
  const complete = (text: string, context: any) => {
    const kernels = provider();
    const providers = new Map([['CompletionProvider:kernel', kernels]]);
    completeMagics({ getProviders: () => providers } as any);
    return kernels.fetch({ text, offset: text.length }, context);
  };

  it('of a magic is there with the reply of the kernel', async () => {
    const text = '%%gpu_train --g';
    const context = { session: { kernel: kernel() } };
    const found = await complete(text, context);
    expect(found).toEqual({ code: text, cursor_pos: text.length });
  });

  it('of another line is as it was', async () => {
    const context = { session: { kernel: kernel() } };
    expect(await complete('import o', context)).toBe('idle, too');
  });

  it('says that the kernel is gone', async () => {
    const gone = kernel();
    gone.sendShellMessage = () => ({ done: Promise.reject(new Error('gone')) });
    const asked = complete('%%gpu_train --g', { session: { kernel: gone } });
    await expect(asked).rejects.toThrow('gone');
  });
});

describe('problems', () => {
  const trans = nullTranslator.load('');
  const of = (options: Partial<typeof NO_OPTIONS>) =>
    problemsOf(
      { options: { ...NO_OPTIONS, ...options }, rest: ['--ps', '1'] },
      4,
      trans
    );
  it.each([
    [{ name: `it's "it"` }, 'name'],
    [{ gpus: '5' }, 'gpus'],
    [{ gpus: '1.5' }, 'gpus'],
    [{ gpus: '0.01' }, 'gpus'],
    [{ gpus: '0.333' }, 'gpus'],
    [{ gpus: '0.5', ranks: '2' }, 'ranks'],
    [{ gpus: '4', ranks: '3' }, 'ranks'],
    [{ ranks: '2' }, 'ranks'],
    [{ gpus: '4', ranks: '4', nodes: 'some' }, 'nodes'],
    [{ gpus: '4', ranks: '4', nodes: '3' }, 'nodes'],
    [{ gpus: '4', nodes: 'any' }, 'nodes'],
    [{ 'min-gpu-memory': '40' }, 'min-gpu-memory'],
    [{ gpus: '0', 'gpu-type': 'h100' }, 'gpu-type'],
    [{ timeout: 'soon' }, 'timeout'],
    [{ timeout: '0' }, 'timeout'],
    [{ gpus: '4', 'min-gpus': '2' }, 'min-gpus'],
    [{ gpus: '4', ranks: '2', 'min-gpus': '3' }, 'min-gpus'],
    [{ gpus: '4', ranks: '4', 'min-gpus': '5' }, 'min-gpus'],
    [{ gpus: '4', ranks: '4', nodes: '2', 'min-gpus': '2' }, 'min-gpus'],
    [{ retries: '101' }, 'retries'],
    [{ restartable: 'yes' }, 'restartable']
  ])('%j: %s is marked', (options, field) =>
    expect(Object.keys(of(options))).toEqual([field])
  );
  it.each([
    [{}],
    [{ gpus: '4', ranks: '2', timeout: '1h30m', 'min-gpu-memory': '40 GiB' }],
    [{ gpus: '0.5' }],
    [{ gpus: '4', ranks: '4', nodes: '2' }],
    [{ gpus: '4', ranks: '4', nodes: 'any' }],
    [{ gpus: '4', ranks: '4', nodes: 'any', 'min-gpus': '1' }],
    [{ gpus: '{n}', ranks: '2' }],
    [{ retries: '2' }],
    [{ gpus: '0', ranks: '4' }]
  ])('%j is fine', options => expect(of(options)).toEqual({}));
});

describe('paths', () => {
  const home = ['', 'home', 'ada'].join('/');
  it.each([
    ['a/b.ipynb', '/data/lab', 'a/b.ipynb'],
    ['/data/lab/a/b.ipynb', '/data/lab', 'a/b.ipynb'],
    [`${home}/lab/b.ipynb`, '~/lab', 'b.ipynb'],
    [`${home}/b.ipynb`, '~', 'b.ipynb'],
    ['/data/b.ipynb', '/', 'data/b.ipynb']
  ])('%s below %s', (path, root, expected) =>
    expect(serverPath(path, root)).toBe(expected)
  );

  it('tell notebooks of one name in several folders apart', () => {
    PageConfig.setOption('serverRoot', home);
    expect(isAt(`${home}/a/b.ipynb`, 'a/b.ipynb')).toBe(true);
    expect(isAt(`${home}/a/b.ipynb`, 'b.ipynb')).toBe(false);
    PageConfig.setOption('serverRoot', '');
  });
});
