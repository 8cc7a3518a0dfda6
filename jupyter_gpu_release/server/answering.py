"""What all handlers of the extension share: who may, errors in one form, records as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from jupyter_server.utils import ensure_async

from ..errors import GpuReleaseError, RequestError

if TYPE_CHECKING:
    from .app import GpuReleaseExtension
    from .gateway import GatewayLine

#: what an authoriser is asked about
AUTH_RESOURCE = "gpu_release"
_BODY_LIMIT_BYTES = 64 << 10
T = TypeVar("T")


class GpuHandler(ExtensionHandlerMixin, APIHandler):
    """Base of the extension's handlers. Each verb of a subclass is authenticated and authorised by decorators."""

    auth_resource = AUTH_RESOURCE

    @property
    def app(self) -> GpuReleaseExtension:
        """The extension that holds all state."""
        return cast("GpuReleaseExtension", self.extensionapp)

    @property
    def username(self) -> str:
        """Jupyter's name of who asks."""
        return str(self.current_user.username)

    @property
    def gateway(self) -> GatewayLine:
        """The line that speaks for who asks; raises :class:`ForbiddenError` when there is none."""
        return self.app.identities.line_of(self.username)

    async def may_act(self) -> bool:
        """Whether the authoriser lets who asks change something here."""
        said = self.authorizer.is_authorized(self, self.current_user, "write", AUTH_RESOURCE)
        return bool(await ensure_async(said))

    def answer(self, document: Any) -> None:
        """Finish with a record as JSON."""
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(document))

    def body(self, kind: type[T], default: T) -> T:
        """The request's body as a record; raises :class:`RequestError` for anything else."""
        content = self.request.body
        if not content:
            return default
        if len(content) > _BODY_LIMIT_BYTES:
            raise RequestError(f"the body is larger than {_BODY_LIMIT_BYTES} bytes")
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            raise RequestError(f"the body is not what this route takes: {error}", mend="see docs/openapi") from error

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Our own errors as ``{"error": {"code", "message", "mend"}, "message"}``; others as Jupyter writes them."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if not isinstance(error, GpuReleaseError):
            super().write_error(status_code, **kwargs)
            return
        self.set_status(error.http_status)
        facts = {"code": error.code, "message": error.message, "mend": error.mend}
        self.answer({"error": facts, "message": error.message})

    def log_exception(self, kind: Any, value: Any, traceback: Any) -> None:
        """Refusals are answers, not faults of the server."""
        if isinstance(value, GpuReleaseError):
            self.log.debug("refused %s: %s", self.request.path, value.message)
        else:
            super().log_exception(kind, value, traceback)
