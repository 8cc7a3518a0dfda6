import { nullTranslator } from '@jupyterlab/translation';
import { ActionRunner, runTarget } from '../../src/model/actions';
import { run } from '../samples';

type Parts = ConstructorParameters<typeof ActionRunner>;

describe('attach', () => {
  it.each([
    ['the kernel that waits', {}, 'k'],
    ['none of a detached run', { detached: true }, undefined],
    ['none of one that was started anew', { unattended: true }, undefined]
  ])('names %s', async (_, more, kernel) => {
    const row = run('r', { kernel: 'k', ...more });
    const model = { snapshot: { active: [row] } } as unknown as Parts[0];
    const attach = jest.fn();
    const navigator = { attach } as unknown as Parts[3];
    const trans = nullTranslator.load('jupyterlab');
    const runner = new ActionRunner(model, {} as Parts[1], trans, navigator);
    await runner.run('attach', runTarget(run('r')));
    expect(attach).toHaveBeenCalledWith(expect.objectContaining({ kernel }));
  });
});
