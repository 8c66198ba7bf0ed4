"""Registers calls and judges their results, for all clients."""

import importlib
import logging
import signal
import traceback

CALLS = {}

# Seconds that a call may take.
PATIENCE = 20


def call(*variants):
    """Registers a function as a call for each variant: the client, or the client and more, which it is given after the world."""

    def register(function):
        for variant in variants:
            client, *rest = variant = variant if isinstance(variant, tuple) else (variant,)
            name = f"{client}: {' '.join([function.__name__.replace('_', ' '), *rest])}"
            assert name not in CALLS, name
            CALLS[name] = (function, variant)
        return function

    return register


def refusal(error):
    """The reason why a call of tritonclient was refused: HTTP's status of 4.., a code of gRPC that blames the request,
    or KServe's 503 for a model that is not ready; None if the server broke."""
    if not hasattr(error, "message"):
        return None
    status, message = str(error.status()), error.message()
    fine = status.startswith("4") or status.removeprefix("StatusCode.") in BLAMES or "is not ready" in message
    return f"{status}: {message}" if fine and message else None


BLAMES = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED", "ALREADY_EXISTS"}


def refused(act, *says):
    """The call must be refused, by a status that blames the request and a message that contains one of these words."""
    try:
        got = act()
    except Exception as error:  # noqa: BLE001
        reason = refusal(error)
        assert reason, f"refused by {type(error).__name__}: {error} (status {getattr(error, 'status', lambda: None)()})"
        assert not says or any(word.lower() in reason.lower() for word in says), f"the reason names none of {says}: {reason}"
        return
    raise AssertionError(f"accepted: {got}")


def run(module, asked):
    """(name, None if it passes, else the reason) of a module's selected calls, which run in their own process, since
    the clients of different makers cannot be loaded together."""
    # Clients log the exceptions that they raise.
    logging.disable(logging.CRITICAL)
    module = importlib.import_module(module)
    world = module.world(asked)
    return [(name, verdict(world, name)) for name in CALLS if asked.wants(name)]


def verdict(world, name):
    """`None` if a call passes, else the reason."""
    function, variant = CALLS[name]
    signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)
    try:
        function(world, *variant)
    except Exception as error:  # noqa: BLE001
        where = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(where) if "scripts/serve" in frame.filename), 0)
        return f"{type(error).__name__} at line {line}: {' '.join(str(error).split())[:300]}"
    finally:
        signal.alarm(0)
    return None


def late(*_):
    raise TimeoutError(f"it took more than {PATIENCE} s")
