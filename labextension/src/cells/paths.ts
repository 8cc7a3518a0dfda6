import { PageConfig } from '@jupyterlab/coreutils';

/** Whether a notebook that a kernel knows is the one that the contents API calls `path`. */
export function isAt(notebook: string, path: string): boolean {
  return serverPath(notebook, PageConfig.getOption('serverRoot')) === path;
}

/** The path as the contents API takes it, of one that a kernel knows (absolute, on the server's disk). */
export function serverPath(notebook: string, root: string): string {
  if (!notebook.startsWith('/')) {
    return notebook;
  }
  const folder = root.replace(/\/+$/, '');
  if (folder.startsWith('/') && notebook.startsWith(folder + '/')) {
    return notebook.slice(folder.length + 1);
  }
  if (folder.startsWith('~/')) {
    const below = folder.slice(1) + '/';
    const at = notebook.indexOf(below);
    return at < 0 ? notebook : notebook.slice(at + below.length);
  }
  if (folder === '~') {
    return notebook.split('/').slice(3).join('/'); // /home/NAME/…
  }
  return notebook.slice(1);
}
