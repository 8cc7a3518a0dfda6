import { LabIcon } from '@jupyterlab/ui-components';
import { GpuState, RunState } from './model/types';

function icon(name: string, shapes: string): LabIcon {
  return new LabIcon({
    name: `jupyter-gpu-release:${name}`,
    svgstr:
      '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">' +
      `<g class="jp-icon3" fill="#616161">${shapes}</g></svg>`
  });
}

const RING =
  'M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm0 2a8 8 0 1 1 0 16 8 8 0 0 1 0-16z';

/** A GPU with its fan: the panel itself. */
export const gpuIcon = icon(
  'gpu',
  '<path d="M1 4h2.5v1.5H21A1.5 1.5 0 0 1 22.5 7v9a1.5 1.5 0 0 1-1.5 1.5h-2V20h-8v-2.5H5V21H3V6H1zM5 7.5v8h15.5v-8z"/>' +
    '<path d="M14.5 8.5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zm0 1.7a1.3 1.3 0 1 0 0 2.6 1.3 1.3 0 0 0 0-2.6zM7 9h2.5v1.5H7zm0 3.5h2.5V14H7z"/>'
);

const running = icon(
  'running',
  '<path d="M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zM10 7.5l7 4.5-7 4.5z"/>'
);
const warm = icon(
  'warm',
  `<path d="${RING}"/><path d="M11 6.5h1.8v5l4 2.4-.9 1.5L11 12.5z"/>`
);
const idle = icon(
  'idle',
  `<path d="${RING}"/><path d="M8.5 8h2.5v8H8.5zm4.5 0h2.5v8H13z"/>`
);
const unattributed = icon(
  'unattributed',
  `<path d="${RING}"/><path d="M11 16h2v2h-2zm1-10a4 4 0 0 0-4 4h2a2 2 0 1 1 3.3 1.5C12 12.6 11 13 11 15h2c0-1.3 1-1.7 2-2.8A4 4 0 0 0 12 6z"/>`
);
const drained = icon(
  'drained',
  '<path d="M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zM4 12a8 8 0 0 1 12.9-6.3L5.7 16.9A8 8 0 0 1 4 12zm8 8a8 8 0 0 1-4.9-1.7L18.3 7.1A8 8 0 0 1 12 20z"/>'
);
const free = icon('free', `<path d="${RING}"/>`);
const succeeded = icon(
  'succeeded',
  '<path d="M9 16.2 4.8 12l-1.4 1.4L9 19 21 7l-1.4-1.4z"/>'
);
const failed = icon(
  'failed',
  '<path d="M19 6.4 17.6 5 12 10.6 6.4 5 5 6.4 10.6 12 5 17.6 6.4 19 12 13.4 17.6 19 19 17.6 13.4 12z"/>'
);
const cancelled = icon('cancelled', '<path d="M6 6h12v12H6z"/>');
const waiting = icon(
  'waiting',
  '<path d="M6 2v6l4 4-4 4v6h12v-6l-4-4 4-4V2zm10 14.5V20H8v-3.5l4-4zM12 11.5l-4-4V4h8v3.5z"/>'
);
const saving = icon(
  'saving',
  '<path d="M11 4h2v8l3-3 1.4 1.4L12 15.8 6.6 10.4 8 9l3 3zM5 18h14v2H5z"/>'
);

export const releaseIcon = icon(
  'release',
  '<path d="M12 4 4.5 14h15zM5 17h14v2.5H5z"/>'
);
export const extendIcon = icon(
  'extend',
  '<path d="M11 4a8 8 0 1 0 7.7 10h-2.1A6 6 0 1 1 11 6zM10 8h1.7v4l3 1.8-.9 1.4L10 13zM17 2h2v3h3v2h-3v3h-2V7h-3V5h3z"/>'
);
export const attachIcon = icon(
  'attach',
  '<path d="M16 7h3v2h-3zM8 7v10H6a5 5 0 0 1-4-4H0v-2h2a5 5 0 0 1 4-4zm2-1h4a5 5 0 0 1 5 5h5v2h-5a5 5 0 0 1-5 5h-4z"/>'
);

export const GPU_ICONS: Record<GpuState, LabIcon> = {
  running,
  warm,
  'idle-kernel': idle,
  unattributed,
  drained,
  free
};

export const RUN_ICONS: Record<RunState, LabIcon> = {
  submitted: waiting,
  queued: waiting,
  starting: running,
  running,
  yielding: running,
  releasing: running,
  persisting: saving,
  succeeded,
  failed,
  lost: failed,
  cancelled
};

export const pinIcon = icon(
  'pin',
  '<path d="M16 9V4h1V2H7v2h1v5l-2 3v2h5v6l1 2 1-2v-6h5v-2z"/>'
);
