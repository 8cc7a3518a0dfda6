import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatPercent, formatPart } from '../format';
import { IGpuUse } from '../model/types';
import { formatMoment } from './times';

const WIDTH = 600;
const HEIGHT = 100;

type Values = readonly (number | null)[];

/** The polylines of values from 0 to 100 in a box; where nothing was told, a line ends and another begins. */
export function linesOf(
  values: Values,
  width: number,
  height: number
): string[] {
  const lines: string[][] = [[]];
  const step = width / Math.max(1, values.length);
  values.forEach((value, index) => {
    if (value === null) {
      lines.push([]);
      return;
    }
    const y = height * (1 - Math.min(100, Math.max(0, value)) / 100);
    const [from, to] = [step * index, step * (index + 1)];
    lines[lines.length - 1].push(
      `${from.toFixed(1)},${y.toFixed(1)} ${to.toFixed(1)},${y.toFixed(1)}`
    );
  });
  return lines.filter(line => line.length > 0).map(line => line.join(' '));
}

/** The outline of the area below a line. */
function areaOf(line: string, height: number): string {
  const points = line.split(' ');
  const first = points[0].split(',')[0];
  const last = points[points.length - 1].split(',')[0];
  return `${first},${height} ${line} ${last},${height}`;
}

interface IPlotProps {
  use: IGpuUse;
  now: number;
  trans: TranslationBundle;
}

/** How busy the GPUs of a run were, and how full their memory. */
export function UsePlot(props: IPlotProps): React.ReactElement {
  const { use, now, trans } = props;
  const busy = use.utilization ?? [];
  const memory = use.memory ?? [];
  const figures = figuresOf(use, trans);
  const since = use.since ?? 0;
  const until = since + busy.length * (use.span_s ?? 0);
  return (
    <figure className="jp-GpuRelease-plot">
      <div className="jp-GpuRelease-plotBox">
        <svg
          viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={trans.__('GPU use over time, %1', figures.join(' · '))}
        >
          {[25, 50, 75].map(y => (
            <line key={y} x1={0} x2={WIDTH} y1={y} y2={y} />
          ))}
          {linesOf(busy, WIDTH, HEIGHT).map((line, index) => (
            <g key={index} className="jp-mod-busy">
              <polygon points={areaOf(line, HEIGHT)} />
              <polyline points={line} />
            </g>
          ))}
          {linesOf(memory, WIDTH, HEIGHT).map((line, index) => (
            <polyline key={index} className="jp-mod-memory" points={line} />
          ))}
        </svg>
        <div className="jp-GpuRelease-plotShares" aria-hidden={true}>
          <span>100 %</span>
          <span>50</span>
          <span>0</span>
        </div>
      </div>
      <div className="jp-GpuRelease-plotAxis" aria-hidden={true}>
        <span>{formatMoment(since, now)}</span>
        <span>{formatMoment(until, now)}</span>
      </div>
      <figcaption>
        <span className="jp-GpuRelease-key jp-mod-busy">{figures[0]}</span>
        <span className="jp-GpuRelease-key jp-mod-memory">{figures[1]}</span>
      </figcaption>
    </figure>
  );
}

/** What is said beside the colour of each line. */
function figuresOf(use: IGpuUse, trans: TranslationBundle): [string, string] {
  const told = (use.utilization ?? []).filter(
    (value): value is number => value !== null
  );
  const mean =
    use.mean_utilization ??
    told.reduce((sum, value) => sum + value, 0) /
      Math.max(1, told.length) /
      100;
  const peak = use.peak_utilization ?? Math.max(0, ...told) / 100;
  const memory =
    use.peak_memory_bytes && use.total_memory_bytes
      ? formatPart(use.peak_memory_bytes, use.total_memory_bytes)
      : null;
  return [
    trans.__(
      'busy: mean %1, peak %2',
      formatPercent(mean),
      formatPercent(peak)
    ),
    memory ? trans.__('memory: up to %1', memory) : trans.__('memory')
  ];
}
