r"""Text of strangers on a terminal: names of jobs, users, nodes and files, reasons, comments.

A terminal acts on control characters: it moves, clears, colours, and changes the direction of what
follows. So each of them is shown as Python would write it (``\x1b``), as is what is no UTF-8.
Commands print by :func:`gangwise.cli.options.echo`, ``say`` and ``screen``, which all come here.

Progress of what takes long inside is reported here (:func:`watched`), and so is a request to stop.
Ctrl-C (SIGINT), and SIGTERM, which Slurm, Kubernetes and systemd send, both mean: finish what is in
hand, save, and end with exit code 130 or 143. A second one interrupts at once. A process that
ignores Ctrl-C, as one that a script starts in the background, still does.

Standard library only.

Words and sentences of a package stand in its file ``words.toml``, read by :func:`words_of`.
"""

import re
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from types import FrameType
from typing import Any

_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line separators, directions of writing
    "\ud800-\udfff]"  # halves of surrogates: bytes of a name that are no UTF-8
)


def shown(text: str) -> str:
    r"""Text as a terminal may have it; tabs and ends of lines stay.

    >>> print(shown("see [/ticket] 5\x1b[2J\x9b2J"))
    see [/ticket] 5\x1b[2J\x9b2J
    """
    # Nearly all text passes: a search alone is cheaper than building it anew.
    return _ACTS.sub(_escaped, text) if _ACTS.search(text) else text


def one_line(value: Any) -> Any:
    r"""Text of others, at any depth of lists and tables, as :func:`shown` and on one line.

    >>> one_line({"why": ["no\nroom", 7]})
    {'why': ['no\\nroom', 7]}
    """
    if isinstance(value, str):
        return shown(value).replace("\n", "\\n")
    if isinstance(value, dict):
        return {one_line(key): one_line(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [one_line(item) for item in value]
    return value


def json_shown(text: str) -> str:
    r"""JSON in which every such character is escaped, as JSON writes it: the same values.

    >>> print(json_shown('"\x9b2J"'))
    "\u009b2J"
    """
    return _ACTS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


# Progress: which file is read, and how far


Report = Callable[[str, int, int], None]
"""Report of progress: what is done, how much of it, and how much there is."""

_reports: list[Report] = []


@contextmanager
def watched(report: Report) -> Iterator[None]:
    """Have progress reported, until the block ends; only the innermost one receives it."""
    _reports.append(report)
    try:
        yield
    finally:
        _reports.remove(report)


def tell(what: str, done: int, of: int) -> None:
    if _reports:
        # The innermost alone: whoever watches from further out counts in other units.
        _reports[-1](what, done, of)


# Stopping this process when it is asked to


REQUESTS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """The process was asked to stop; ``signal`` says how."""

    def __init__(self, message: str = "", number: int = signal.SIGINT):
        self.signal = number
        super().__init__(message)


def exit_code(stop: KeyboardInterrupt) -> int:
    """128 and the number of the signal.

    >>> exit_code(KeyboardInterrupt()), exit_code(Stopped(number=signal.SIGTERM))
    (130, 143)
    """
    return 128 + int(getattr(stop, "signal", signal.SIGINT))


_received: list[Stopped] = []


def stop_at_once() -> None:
    """Let Ctrl-C and SIGTERM raise Stopped in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        _received.append(Stopped(number=number))
        raise _received[-1]

    for number, usual in zip(REQUESTS, (signal.default_int_handler, signal.SIG_DFL)):
        # A handler that somebody else has set stays, and so does a signal that is ignored.
        if signal.getsignal(number) == usual:
            signal.signal(number, stop)


@contextmanager
def stops_kept() -> Iterator[None]:
    """Raise the stop, not an error that compiled code makes of it.

    A stop in a callback of compiled code may be printed and dropped; the code then fails for a
    reason of its own.
    """
    try:
        yield
    except Exception as error:
        stop = _received[-1] if _received else None
        behind: BaseException | None = error
        while behind is not None and behind is not stop:
            behind = behind.__context__
        if stop is not None and behind is None:
            raise stop from error
        raise


class StopRequest(threading.Event):
    """Set when the process is asked to stop; ``signal`` says how."""

    signal: int = signal.SIGINT


@contextmanager
def requests_to_stop() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM into a request, to be looked at when it suits."""
    request_made = StopRequest()
    # Python lets signal handlers be set in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield request_made
        return

    def request(number: int, frame: FrameType | None) -> None:
        # The second request: whoever asks twice does not want to wait.
        if request_made.is_set():
            raise Stopped(number=number)
        request_made.signal = number
        request_made.set()

    handlers = {number: signal.getsignal(number) for number in REQUESTS}
    for number, handler in handlers.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, request)
    try:
        yield request_made
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # None: it was not set from Python
                signal.signal(number, handler)


@contextmanager
def children_left_alone() -> Iterator[None]:
    """Shield processes that are started here from Ctrl-C and SIGTERM: their parent ends them.

    A terminal sends Ctrl-C to all processes of a command; a worker that gets it while it starts
    prints a traceback. Blocked signals stay blocked in a new process; here they wait for the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@cache
def words_of(package: str) -> Mapping[str, Any]:
    """The tables of the package's ``words.toml``."""
    return tomllib.loads((files(package) / "words.toml").read_text(encoding="utf-8"))


def cause_words(cause: str, of: str = "short") -> str:
    """A cause of waiting, in a line: what it is called (``short``), or its ``meaning``.

    >>> cause_words("reservation"), cause_words("busy")
    ('a reservation', 'nothing free')
    """
    text = str(words_of("gangwise.study")["causes"][cause][of])
    return text.replace("-\n", "").replace("\n", " ")


def phrases(package: str) -> Callable[..., str]:
    """Formatter of a package's ``texts``: takes the name of a text and the values in its places."""

    def phrase(name: str, /, **values: object) -> str:
        return str(words_of(package)["texts"][name]).format(**values)

    return phrase
