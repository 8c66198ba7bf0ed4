"""The exceptions of this package."""


class Error(RuntimeError):
    """What went wrong, where, and what to do about it.

    ``kind`` is a short category to branch on: ``"shape mismatch"``, ``"unsupported"``, ``"malformed data"``.
    """

    kind: str

    def __init__(self, message: str, kind: str = "invalid argument") -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type["Error"], tuple[str, str]]:
        return type(self), (str(self), self.kind)


class ArgumentError(Error, ValueError):
    """An :class:`Error` about an invalid value, shape, dtype or file in an argument."""


Error.__module__ = ArgumentError.__module__ = "polygrad"
