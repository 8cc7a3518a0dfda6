import { nullTranslator } from '@jupyterlab/translation';
import { fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';
import { ApiError } from '../src/model/api';
import { NOTHING, type Situation } from '../src/model/snapshot';
import { IFinding } from '../src/model/types';
import { Examination } from '../src/plugins/doctor';
import { SituationView } from '../src/view/empty-states';
import { FakeApi } from './samples';

const trans = nullTranslator.load('');

function finding(level: IFinding['level'], more = {}): IFinding {
  return {
    check: 'store',
    level,
    finding: level,
    mend: '',
    where: '',
    ...more
  };
}

describe('Examination', () => {
  it('shows what is broken first, each with what to do', async () => {
    const api = new FakeApi();
    api.report = {
      ok: false,
      findings: [
        finding('ok'),
        finding('note', { mend: 'run `jupyter gpu gc`' }),
        finding('broken', { where: 'gpu-01', mend: 'mount it' })
      ]
    };
    const { container } = render(<Examination api={api} trans={trans} />);
    expect(container.textContent).toMatch(/Looking at server/);
    await screen.findByText('1 broken, 1 worth knowing, 1 fine');
    const rows = screen.getAllByRole('listitem').map(row => row.textContent);
    expect(rows).toEqual([
      '✗gpu-01 · storebroken→ mount it',
      '·storenote→ run jupyter gpu gc',
      '✓storeok'
    ]);
    expect(screen.getByRole('img', { name: 'Broken' })).toBeTruthy();
    expect(api.calls).toEqual(['doctor']);
  });

  it('can be read by the keyboard, and only says its summary aloud', async () => {
    const api = new FakeApi();
    api.report = { ok: true, findings: [finding('ok')] };
    const { container } = render(<Examination api={api} trans={trans} />);
    const said = container.querySelectorAll('[aria-live]');
    await screen.findByText(/1 fine/);
    expect([...said].map(line => line.textContent)).toEqual([
      '0 broken, 0 worth knowing, 1 fine'
    ]);
    expect(container.querySelectorAll('[aria-live]').length).toBe(1);
    const region = screen.getByRole('region', { name: 'Findings' });
    expect(region.tabIndex).toBe(0);
    expect(region.querySelectorAll('li').length).toBe(1);
  });

  it('takes levels of a newer server for something worth knowing', async () => {
    const api = new FakeApi();
    const level = 'grave' as IFinding['level'];
    api.report = { ok: true, findings: [finding(level), finding('ok')] };
    render(<Examination api={api} trans={trans} />);
    await screen.findByText('0 broken, 1 worth knowing, 1 fine');
    const rows = screen.getAllByRole('listitem').map(row => row.textContent);
    expect(rows).toEqual(['·storegrave', '✓storeok']);
    expect(screen.getByRole('img', { name: 'Worth knowing' })).toBeTruthy();
  });

  it('says why the server cannot look', async () => {
    const api = new FakeApi();
    api.report = new ApiError(0, 'no contact', 'is it running?');
    render(<Examination api={api} trans={trans} />);
    const alert = await screen.findByRole('alert');
    expect(alert.textContent).toBe('no contact: is it running?');
  });
});

describe('Check', () => {
  const draw = (situation: Situation, onCheck?: () => void) =>
    render(
      <SituationView
        snapshot={{ ...NOTHING, situation }}
        trans={trans}
        onRetry={() => undefined}
        onStart={() => undefined}
        onCheck={onCheck}
      />
    );
  it('is not offered while a cluster starts', () => {
    const start = { state: 'starting', elapsed_s: 2 } as const;
    render(
      <SituationView
        snapshot={{ ...NOTHING, situation: 'no-cluster', start }}
        trans={trans}
        onRetry={() => undefined}
        onStart={() => undefined}
        onCheck={() => undefined}
      />
    );
    expect(screen.queryByRole('button')).toBeNull();
  });

  const button = () => screen.queryByRole('button', { name: 'Check…' });

  it.each<Situation>(['no-cluster', 'no-gpu', 'gateway-down', 'refused'])(
    'is offered: %s',
    situation => {
      let asked = 0;
      draw(situation, () => (asked += 1));
      fireEvent.click(button()!);
      expect(asked).toBe(1);
    }
  );

  it.each<Situation>(['ready', 'loading', 'offline', 'not-permitted'])(
    'is not offered: %s',
    situation => {
      draw(situation, () => undefined);
      expect(button()).toBeNull();
    }
  );
});
