"""A server extension of the tests: settings change while the server runs, and somebody hears its events.

So limits of seconds begin to count when a test has set its scene, however long that took. Events are checked against
their schemas only where somebody hears them, as each JupyterLab does.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.serverapp import ServerApp
from tornado import web
from tornado.ioloop import IOLoop

PATH = "/live-settings"


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(app: ServerApp) -> None:
    app.web_app.add_handlers(".*", [(PATH, _Settings, {"app": app})])
    # once all extensions are loaded, and their schemas with them
    IOLoop.current().add_callback(lambda: app.event_logger.add_listener(listener=_hear))


async def _hear(logger: Any, schema_id: str, data: dict[str, Any]) -> None:
    pass


class _Settings(APIHandler):
    def initialize(self, app: Any) -> None:
        (ours,) = app.extension_manager.extension_apps["jupyter_gpu_release"]
        self._configured = {"GpuCuller": ours.culler, "MappingKernelManager": app.kernel_manager}

    @web.authenticated
    def put(self) -> None:
        """Traits by class, as in a configuration file."""
        for name, traits in (self.get_json_body() or {}).items():
            for trait, value in traits.items():
                setattr(self._configured[name], trait, value)
        self.set_status(204)
