import {
  ILabShell,
  ILayoutRestorer,
  IRouter,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { RunPage } from '../run-page/page';
import { CommandIDs, IGpus } from '../tokens';

const PARAMETER = 'gpu-run';
const ID = /^[\w-]+$/;

/** The address that opens JupyterLab with the page of a run. */
export function linkTo(run: string): string {
  // Notebook 7, whose own pages show one document, comes with JupyterLab
  const page = URLExt.join(PageConfig.getBaseUrl(), 'lab');
  return `${page}?${PARAMETER}=${run}`;
}

export const runPagePlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:run-page',
  description: 'A page for each run: its output, code, times and files.',
  autoStart: true,
  requires: [IGpus, IRenderMimeRegistry],
  optional: [ILabShell, ILayoutRestorer, IRouter],
  activate: (
    app: JupyterFrontEnd,
    gpus: IGpus,
    rendermime: IRenderMimeRegistry,
    lab: ILabShell | null,
    restorer: ILayoutRestorer | null,
    router: IRouter | null
  ) => {
    const tracker = new WidgetTracker<MainAreaWidget<RunPage>>({
      namespace: 'gpu-run'
    });
    const make = (run: string) => {
      const settings = app.serviceManager.serverSettings;
      const options = { run, gpus, rendermime, settings, link: linkTo(run) };
      const widget = new MainAreaWidget({ content: new RunPage(options) });
      widget.id = `jupyter-gpu-release-run-${run}`;
      widget.toolbar.hide();
      void tracker.add(widget);
      app.shell.add(widget, 'main');
      return widget;
    };
    const showTab = (run: string) => {
      const known = tracker.find(({ content }) => content.run === run);
      app.shell.activateById((known ?? make(run)).id);
    };
    // Notebook 7 has one document in its main area: a tab of the browser, the same one for the same run
    const show = lab
      ? showTab
      : (run: string) => void window.open(linkTo(run), `gpu-run-${run}`);
    app.commands.addCommand(CommandIDs.openRun, {
      label: gpus.trans.__('Show run'),
      execute: args => {
        const run = String(args.run ?? '');
        if (ID.test(run)) {
          show(run);
        }
      }
    });
    void restorer?.restore(tracker, {
      command: CommandIDs.openRun,
      args: ({ content }) => ({ run: content.run }),
      name: ({ content }) => content.run
    });
    if (router) {
      followLinks(app, router);
    }
  }
};

/** Open the page that an address names, once JupyterLab is there; the address is JupyterLab's own again then. */
function followLinks({ commands, restored }: JupyterFrontEnd, router: IRouter) {
  commands.addCommand(CommandIDs.openRunOfUrl, {
    execute: async () => {
      const { request, search } = router.current;
      const url = new URLSearchParams(search);
      const run = url.get(PARAMETER);
      url.delete(PARAMETER);
      const rest = url.toString();
      await restored;
      await commands.execute(CommandIDs.openRun, { run });
      const path = request.replace(/\?.*$/, '');
      router.navigate(rest ? `${path}?${rest}` : path, { skipRouting: true });
    }
  });
  router.register({
    command: CommandIDs.openRunOfUrl,
    pattern: new RegExp(`[?&]${PARAMETER}=[\\w-]+`)
  });
}
