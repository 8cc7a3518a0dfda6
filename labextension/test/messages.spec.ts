import { nullTranslator } from '@jupyterlab/translation';
import { refusal } from '../src/model/api';
import { cullOf } from '../src/model/events';
import { warningText } from '../src/plugins/notifications';

describe('events', () => {
  const schema_id = 'https://schema.jupyter-gpu-release.org/idle_policy/v1';
  const warn = {
    schema_id,
    action: 'warn',
    kind: 'kernel',
    subject: 'k1',
    reason: 'idle for 42 min',
    due_s: 300,
    path: 'a.ipynb',
    dry_run: false,
    done: false
  };

  it('a warning, what was done, an answer', () => {
    expect(cullOf(warn)).toMatchObject({ phase: 'warning', id: 'k1' });
    const done = { ...warn, action: 'release', done: true };
    expect(cullOf(done)?.phase).toBe('done');
    const answer = {
      schema_id: 'https://schema.jupyter-gpu-release.org/request/v1',
      action: 'keep',
      subject: 'k1',
      user: 'ada'
    };
    expect(cullOf(answer)?.phase).toBe('answered');
  });

  it('nothing that was only tried, or concerns others', () => {
    expect(cullOf({ ...warn, dry_run: true })).toBeNull();
    expect(cullOf({ ...warn, action: 'release', done: false })).toBeNull();
    expect(cullOf({ ...warn, subject: '' })).toBeNull();
    expect(
      cullOf({
        schema_id: schema_id.replace('idle_policy', 'changed'),
        what: 'cluster'
      })
    ).toBeNull();
  });
});

describe('refusals', () => {
  it('say what the server says, whoever wrote it', () => {
    const ours = '{"error": {"message": "not yours", "mend": "ask `bob`"}}';
    expect(refusal(403, ours)).toMatchObject({
      status: 403,
      message: 'not yours',
      mend: 'ask bob'
    });
    expect(refusal(502, '<html>').message).toBe('HTTP 502');
    expect(refusal(403, '{"message": "Forbidden"}').message).toBe('Forbidden');
  });
});

describe('warnings', () => {
  const trans = nullTranslator.load('');

  it('a warning says what and when before why: JupyterLab cuts it off', () => {
    const text = warningText(trans, {
      phase: 'warning',
      kind: 'kernel',
      id: 'k1',
      action: 'warn',
      due_s: 600,
      reason: 'has been idle for 42 min',
      path: 'a/b.ipynb'
    });
    expect(text).toBe(
      'b.ipynb holds a GPU for nothing. It is taken in 10 min. (has been idle for 42 min)'
    );
  });
});
