import type { NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import { HeldModels } from '../../src/outputs/held-models';

/** A kernel that answers what it holds when it is told to. */
function notebook(saved: object = {}) {
  const getMetadata = jest.fn(() => saved);
  const metadataChanged = new Signal<object, object>({});
  const iopubMessage = new Signal<object, object>({});
  const factories: string[] = [];
  const statusChanged = new Signal<object, string>({});
  const kernelChanged = new Signal<object, unknown>({});
  const asked: ((comms: string[]) => void)[] = [];
  const kernel = {
    requestCommInfo: () =>
      new Promise(resolve =>
        asked.push(comms =>
          resolve({
            content: {
              status: 'ok',
              comms: Object.fromEntries(comms.map(id => [id, {}]))
            }
          })
        )
      )
  };
  const panel = {
    content: {
      model: { getMetadata, metadataChanged },
      rendermime: {
        getFactory: (type: string) =>
          factories.includes(type) ? {} : undefined
      }
    },
    sessionContext: {
      session: { kernel },
      statusChanged,
      kernelChanged,
      iopubMessage
    }
  };
  const onChange = jest.fn();
  const models = new HeldModels(panel as unknown as NotebookPanel, onChange);
  /** The kernel says whether it is busy, to whom `asked` it. */
  const say = (execution_state: string, session: string, asked = 'page') =>
    iopubMessage.emit({
      header: { msg_type: 'status', session },
      parent_header: { session: asked },
      content: { execution_state }
    });
  return {
    models,
    asked,
    onChange,
    statusChanged,
    kernelChanged,
    panel,
    getMetadata,
    metadataChanged,
    factories,
    say
  };
}

const settled = () => new Promise(resolve => setTimeout(resolve));

describe('the models that a kernel holds', () => {
  it('are those that it says, asked once for all that were looked for meanwhile', async () => {
    const { models, asked, onChange } = notebook();
    expect(models.has('m')).toBe(false);
    await settled();
    expect([models.has('n'), models.has('o'), models.has('m')]).toEqual([
      false,
      false,
      false
    ]);
    await settled();
    expect(asked.length).toBe(1); // the kernel may be busy for hours
    asked[0](['m']);
    await settled();
    expect(models.has('m')).toBe(true);
    expect(onChange).toHaveBeenCalledTimes(1);
    expect(asked.length).toBe(2);
    asked[1](['m', 'n']);
    await settled();
    expect([models.has('n'), models.has('o')]).toEqual([true, false]);
    expect(asked.length).toBe(2);
  });

  it('end with its process, whose late answer does not count', async () => {
    const { models, asked, onChange, statusChanged } = notebook();
    models.has('m');
    await settled();
    asked[0](['m']);
    await settled();
    const late = models.ask();
    await settled();
    statusChanged.emit('restarting');
    expect(models.has('m')).toBe(false);
    expect(onChange).toHaveBeenCalledTimes(2);
    asked[1](['m']);
    await late;
    expect(models.has('m')).toBe(false);
    statusChanged.emit('idle');
    await settled();
    expect(asked.length).toBe(3); // the next process is asked
    asked[2]([]);
    await settled();
    statusChanged.emit('idle');
    await settled();
    expect(asked.length).toBe(3);
    expect(models.has('m')).toBe(false);
  });

  it('may be in the document, and none is where there is no kernel', async () => {
    const state = { m: {} };
    const { models, asked, panel } = notebook({
      'application/vnd.jupyter.widget-state+json': { state }
    });
    panel.sessionContext.session = null as never;
    expect([models.has('m'), models.has('n')]).toEqual([true, false]);
    await models.ask();
    expect(asked.length).toBe(0);
    models.dispose();
  });

  it.each(['restarting', 'starting'])(
    'are asked for anew where the last answer never comes: %s',
    async status => {
      const { models, asked, statusChanged } = notebook();
      models.has('m');
      await settled();
      const both = Promise.all([models.ask(), models.ask()]);
      statusChanged.emit(status); // of a busy kernel, by another page
      await both; // who waits goes on
      expect(asked.length).toBe(1);
      statusChanged.emit('idle');
      await settled();
      expect(asked.length).toBe(2);
      asked[1](['n']);
      await settled();
      asked[0](['m']);
      await settled();
      expect([models.has('m'), models.has('n')]).toEqual([false, true]);
    }
  );

  it('are those of a new process whose start was not heard', async () => {
    const { models, asked, say } = notebook();
    models.has('m');
    await settled();
    say('busy', 'first');
    asked[0](['m']);
    await settled();
    say('restarting', 'server'); // servers have sessions of their own
    say('idle', 'first');
    say('idle', 'page'); // so do kernels that repeat who asked
    expect(models.has('m')).toBe(true);
    say('idle', 'second');
    expect(models.has('m')).toBe(false);
    await settled();
    expect(asked.length).toBe(2);
    asked[1]([]);
    await settled();
    say('busy', 'second');
    await settled();
    expect(asked.length).toBe(2);
  });

  it('nobody waits for once the notebook is closed', async () => {
    const { models } = notebook();
    const answer = models.ask();
    await settled();
    models.dispose();
    await answer;
  });

  it('are looked up in the document once for each of its changes', () => {
    const type = 'application/vnd.jupyter.widget-state+json';
    const saved = { [type]: { state: { m: {} } as object } };
    const { models, getMetadata, metadataChanged } = notebook(saved);
    for (let look = 0; look < 20; look++) {
      expect([models.has('m'), models.has('n')]).toEqual([true, false]);
    }
    expect(models.has('toString')).toBe(false);
    expect(getMetadata).toHaveBeenCalledTimes(1);
    saved[type].state = { n: {} };
    metadataChanged.emit({});
    expect([models.has('m'), models.has('n')]).toEqual([false, true]);
    expect(getMetadata).toHaveBeenCalledTimes(2);
    models.dispose();
  });

  it('are drawn where the page has a renderer for them', () => {
    const { models, factories } = notebook();
    expect(models.areDrawn).toBe(false);
    factories.push('application/vnd.jupyter.widget-view+json');
    expect(models.areDrawn).toBe(true); // it may come late
  });
});
