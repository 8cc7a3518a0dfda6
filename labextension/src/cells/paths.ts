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
