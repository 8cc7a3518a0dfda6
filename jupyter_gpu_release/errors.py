"""Every error that we raise on purpose: facts in, a message out that names the thing, the reason and the mend.

``code`` is the stable word that crosses processes (gateway replies, run outcomes); ``http_status`` is what
the gateway answers with. The user's own exceptions are never wrapped in these.
"""

from __future__ import annotations

from typing import ClassVar


class GpuReleaseError(Exception):
    """Root of all errors of this package. ``hint`` says what the reader can do about it."""

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(cls: type[GpuReleaseError], message: str, hint: str) -> GpuReleaseError:
    return cls(message, hint=hint)


class OptionError(GpuReleaseError):
    """An option is unknown, misspelt, contradictory or out of range."""

    code = "bad_option"
    http_status = 400


class RequestError(GpuReleaseError):
    """A message to the gateway is malformed or too large."""

    code = "bad_request"
    http_status = 400


class CannotSendError(GpuReleaseError):
    """A name that the cell reads cannot be serialised; raised in the notebook, before queueing."""

    code = "cannot_send"
    http_status = 400


class WrongCallError(GpuReleaseError, TypeError):
    """A launched function cannot be called like that; raised before queueing."""

    code = "wrong_call"
    http_status = 400


class ImpossibleAskError(GpuReleaseError):
    """The cluster could never grant this (more GPUs than it has, an unknown GPU); said at once."""

    code = "impossible_ask"
    http_status = 422


class MissingPackageError(GpuReleaseError):
    """The cell needs a package that the cluster's nodes lack and cannot install."""

    code = "missing_package"
    http_status = 422


class AuthenticationError(GpuReleaseError):
    """No token, a wrong one or an expired one."""

    code = "unauthenticated"
    http_status = 401


class ForbiddenError(GpuReleaseError):
    """Known user, but not allowed to do this (another user's run, a foreign Origin or Host)."""

    code = "forbidden"
    http_status = 403


class NoSuchRunError(GpuReleaseError):
    """No run of this id (or none that this user may see)."""

    code = "no_such_run"
    http_status = 404


class NoSuchNodeError(GpuReleaseError):
    """No node of the cluster has this name or id."""

    code = "no_such_node"
    http_status = 404


class NoSuchTokenError(GpuReleaseError):
    """No token of this id, or none of this user."""

    code = "no_such_token"
    http_status = 404


class _LaterError(GpuReleaseError):
    """Too much for now; ``retry_after_s``: when it may be tried again, as far as that is known."""

    http_status = 429

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class TooManyAttemptsError(_LaterError):
    """Too many unknown tokens came from one address; later ones must wait."""

    code = "too_many_attempts"


class TooManyRequestsError(_LaterError):
    """A user asks more often than the gateway answers one."""

    code = "too_many_requests"


class ConflictError(GpuReleaseError):
    """The thing exists already, or its state does not allow this."""

    code = "conflict"
    http_status = 409


class ProtocolError(GpuReleaseError):
    """Gateway and client speak different protocol versions."""

    code = "protocol_version"
    http_status = 426


class GatewayUnavailableError(GpuReleaseError):
    """The gateway does not answer (down, wrong address, network)."""

    code = "gateway_unavailable"
    http_status = 503


class ClusterError(GpuReleaseError):
    """The Ray cluster cannot be started, reached or used."""

    code = "cluster"
    http_status = 503


class StoreError(GpuReleaseError):
    """The shared filesystem cannot be read or written, or holds something damaged."""

    code = "store"
    http_status = 507


class RunLostError(GpuReleaseError):
    """Process, node or cluster of the run died, so its names are gone."""

    code = "lost"
    http_status = 410


class RunFailedError(GpuReleaseError):
    """The run ended without an exception of the user's own (killed for memory, segfault, timeout)."""

    code = "failed"
    http_status = 410


class RunCancelledError(GpuReleaseError):
    """Somebody cancelled the run."""

    code = "cancelled"
    http_status = 410


class NothingPublishedError(GpuReleaseError):
    """A value is asked for that no run has published."""

    code = "nothing_published"
    http_status = 404


class RankError(GpuReleaseError):
    """The ranks of a gang do not meet: one has ended, or they called different things."""

    code = "ranks"
    http_status = 410


class StillTrainingError(GpuReleaseError):
    """A value is used that a run in the background is still making."""

    code = "still_training"
    http_status = 409


class LoadError(GpuReleaseError):
    """A name's value cannot be rebuilt here (a package is missing or of another version)."""

    code = "cannot_send"
    http_status = 400


class MissingHereError(GpuReleaseError, ModuleNotFoundError):
    """A placeholder was used."""

    code = "missing_package"
    http_status = 422


class MappedFileError(GpuReleaseError):
    """The file of a ``np.memmap`` cannot be mapped here."""

    code = "cannot_send"
    http_status = 400


class WrongAddressError(GatewayUnavailableError):
    """Trying again cannot help: the name does not exist, or something else than a gateway lives there."""


class StoreSilentError(StoreError):
    """The store has not answered for so long that it is taken to hang."""


BY_CODE: dict[str, type[GpuReleaseError]] = {
    cls.code: cls
    for cls in (
        OptionError,
        RequestError,
        CannotSendError,
        WrongCallError,
        ImpossibleAskError,
        MissingPackageError,
        AuthenticationError,
        ForbiddenError,
        NoSuchRunError,
        ConflictError,
        ProtocolError,
        NoSuchNodeError,
        NoSuchTokenError,
        TooManyAttemptsError,
        TooManyRequestsError,
        GatewayUnavailableError,
        ClusterError,
        StoreError,
        RunLostError,
        RunFailedError,
        RunCancelledError,
        StillTrainingError,
        NothingPublishedError,
        RankError,
    )
}


def from_code(code: str, message: str, hint: str = "") -> GpuReleaseError:
    """Build the error that ``code`` names; an unknown code gives the root class."""
    return BY_CODE.get(code, GpuReleaseError)(message, hint=hint)
