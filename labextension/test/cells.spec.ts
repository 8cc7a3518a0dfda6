import { readMagic, writeMagic } from '../src/cells/magic';
import { serverPath } from '../src/cells/paths';

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
});
