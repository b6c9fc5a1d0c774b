"""Pipelined prepared statements: prepared once per connection, any number of them in one flush.

Uses libpq through `psycopg.pq`, because psycopg's own `execute` takes a round trip and more
interpreter time for each statement (decision 0017 has the figures). psycopg still does everything
else about a connection: opening, closing, result adaptation, errors. `plain` is the alternative
that uses psycopg's cursors only (setting `postgres_pipeline`).
"""

from __future__ import annotations

import re
import select
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import psycopg
from psycopg import errors as pgerrors
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from penstock.db.postgres.array_literal import array_literal
from penstock.db.store import Row

PREPARED_MAX: Final = 500
"""Maximum number of prepared statements per connection; the least recently used is dropped."""

_NO_TYPE, _BOOL, _BYTEA, _INT8, _FLOAT8, _INT8_ARRAY = 0, 16, 17, 20, 701, 1016
_MARK: Final = re.compile(r"%(?:\((\w+)\)s|%)")
_DONE: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)
WAITS_FOR_STANDBY: Final = "SyncRepWaitForLSN"
"""The server's function that warns when a commit no longer waits for its standby."""
STALE: Final = (pgerrors.FeatureNotSupported, pgerrors.InvalidSqlStatementName)
"""Errors of a prepared statement that is missing or outdated; the connection is then replaced."""


class StatementResult(Protocol):
    """The result of one statement."""

    def rows(self) -> list[Row]:
        """Return the rows of the result as Python values."""
        ...

    def count(self) -> int:
        """Return the number of rows affected or returned."""
        ...

    def status(self) -> str:
        """Return the server's command tag, such as COMMIT."""
        ...


class Encoded(NamedTuple):
    """A statement in the form that libpq expects."""

    text: bytes
    values: Sequence[bytes | None]
    types: tuple[int, ...]


class PipelinedStatement:
    """One statement to be sent to the server, and its result once it has arrived."""

    __slots__ = ("encoded", "label", "params", "result", "text")

    def __init__(
        self,
        label: str,
        text: str,
        params: Mapping[str, Any] | None = None,
        encoded: Encoded | None = None,
    ) -> None:
        """Create a statement; without `params` it is planned for this call only."""
        self.label = label
        self.text = text
        self.params = params
        self.encoded = encoded
        self.result: StatementResult | None = None

    def rows(self) -> list[Row]:
        """Return the rows of the result."""
        return self.arrived().rows()

    def count(self) -> int:
        """Return the number of rows affected or returned."""
        return self.arrived().count()

    def arrived(self) -> StatementResult:
        """Return the result, which must have arrived."""
        assert self.result is not None, f"{self.label} has no result yet"
        return self.result


class _Form(NamedTuple):
    """A statement in the server's syntax, and its parameter names in order."""

    text: bytes
    names: tuple[str, ...]


def prepared(label: str, text: str, params: Mapping[str, Any]) -> PipelinedStatement:
    """Build a statement with `%(name)s` placeholders that is prepared once and reused."""
    form = _form(text)
    values = [_encoded(params[name]) for name in form.names]
    encoded = Encoded(form.text, [v[0] for v in values], tuple(v[1] for v in values))
    return PipelinedStatement(label, text, params, encoded)


def verbatim(label: str, text: str) -> PipelinedStatement:
    """Build a statement without parameters, to be planned for this call only."""
    return PipelinedStatement(label, text, None, Encoded(text.encode(), (), ()))


class PostgresSession(psycopg.Connection[Row]):
    """A connection that tracks the statements prepared on it."""

    keeps_statements = True
    """Whether this connection has its own server session, so that statements stay prepared."""
    _wire: StatementPipeline | None = None

    @property
    def statement_pipeline(self) -> StatementPipeline:
        """Sender of statements over this connection, created on first use."""
        if self._wire is None:
            self._wire = self._new_pipeline()
        return self._wire

    def _new_pipeline(self) -> StatementPipeline:
        return StatementPipeline(self)


class StatementPipeline:
    """Sends statements over one connection. Not thread-safe."""

    is_pipelined = True
    """Whether several statements are sent in one flush, so that queuing them saves time."""
    prepared = staticmethod(prepared)

    def __init__(self, connection: PostgresSession) -> None:
        self.connection = connection
        # If psycopg prepared statements itself, it would deallocate all of them on ROLLBACK.
        connection.prepare_threshold = None
        self._pg = connection.pgconn
        self._loading = Transformer(connection)
        self._names: OrderedDict[tuple[bytes, tuple[int, ...]], bytes] = OrderedDict()
        self._made = 0
        self._keeps_statements = connection.keeps_statements
        self._is_unreplicated = False
        connection.add_notice_handler(self._on_notice)

    @property
    def is_dead(self) -> bool:
        """Whether the connection is lost."""
        return self._pg.status == ConnStatus.BAD

    def send(self, asks: Sequence[PipelinedStatement]) -> None:
        """Execute the statements in order, in one flush. Raises the first error.

        Statements after a failing one are not executed. Outside a transaction, the statements form
        a separate transaction.
        """
        try:
            sent = self._queue(asks)
            results = self._fetch(is_pipeline=len(sent) > 1)
        except BaseException:
            # The results still in flight can no longer be matched to statements.
            self.connection.close()
            raise
        for (ask, is_for_prepare), result in zip(sent, results, strict=False):
            if result.status not in _DONE:
                raise self._error_of(result)
            if is_for_prepare is not None:
                self._names[_key(ask)] = is_for_prepare
            elif ask.label == "DEALLOCATE":
                self._names.popitem(last=False)
            else:
                ask.result = _Received(self, result)
        if len(results) < len(sent):
            raise psycopg.OperationalError("the connection to PostgreSQL is lost")
        self._check_replicated()

    def load_rows(self, result: PGresult) -> list[Row]:
        """Return the rows of a result, as Python values."""
        self._loading.set_pgresult(result)
        return self._loading.load_rows(0, result.ntuples, tuple)

    def _on_notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.source_function == WAITS_FOR_STANDBY:
            self._is_unreplicated = True

    def _check_replicated(self) -> None:
        """Raise if a commit stopped waiting for its synchronous standby, which may lack it.

        The server reports such a commit as done, with a warning. Its outcome is as unknown as that
        of a connection that broke, so the connection is closed.
        """
        if self._is_unreplicated:
            self.connection.close()
            raise psycopg.OperationalError(
                "the wait for the synchronous standby was cancelled: a failover may lose the commit"
            )

    def _error_of(self, result: PGresult) -> psycopg.Error:
        error = pgerrors.error_from_result(result)
        if isinstance(error, STALE):
            self.connection.close()
        return error

    def _queue(
        self, asks: Sequence[PipelinedStatement]
    ) -> list[tuple[PipelinedStatement, bytes | None]]:
        """Queue the statements, each new one after its PREPARE. Return what was queued."""
        pg, names = self._pg, self._names
        if not self._keeps_statements:
            return self._queue_unnamed(asks)
        if len(asks) == 1 and (found := names.get(_key(asks[0]))) is not None:
            names.move_to_end(_key(asks[0]))
            pg.send_query_prepared(found, _sent(asks[0]).values)
            return [(asks[0], None)]
        if len(asks) == 1 and asks[0].params is None:
            pg.send_query_params(_sent(asks[0]).text, None)
            return [(asks[0], None)]
        sent: list[tuple[PipelinedStatement, bytes | None]] = []
        new: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        pg.enter_pipeline_mode()
        for ask in asks:
            encoded = _sent(ask)
            if ask.params is None:
                pg.send_query_params(encoded.text, None)
            else:
                key = (encoded.text, encoded.types)
                known = names.get(key) or new.get(key)
                if known is None:
                    self._made += 1
                    known = new[key] = b"penstock_%d" % self._made
                    pg.send_prepare(known, *key)
                    sent.append((ask, known))
                elif key in names:
                    names.move_to_end(key)
                pg.send_query_prepared(known, encoded.values)
            sent.append((ask, None))
        # Last, because BEGIN must come first: a query before it would fix the isolation level.
        for name in list(islice(names.values(), max(len(names) - PREPARED_MAX, 0))):
            gone = verbatim("DEALLOCATE", f"DEALLOCATE {name.decode()}")
            pg.send_query_params(_sent(gone).text, None)
            sent.append((gone, None))
        pg.pipeline_sync()
        return sent

    def _queue_unnamed(
        self, asks: Sequence[PipelinedStatement]
    ) -> list[tuple[PipelinedStatement, bytes | None]]:
        """Queue the statements, each to be planned for this call only."""
        if len(asks) > 1:
            self._pg.enter_pipeline_mode()
        for ask in asks:
            encoded = _sent(ask)
            self._pg.send_query_params(encoded.text, encoded.values, encoded.types)
        if len(asks) > 1:
            self._pg.pipeline_sync()
        return [(ask, None) for ask in asks]

    def _fetch(self, *, is_pipeline: bool) -> list[PGresult]:
        """Return the results in order; fewer than were sent if the connection broke."""
        pg, results = self._pg, []
        while pg.flush():
            if _wait(pg.socket, writing=True) & select.POLLIN:
                pg.consume_input()
        while True:
            while pg.is_busy():
                _wait(pg.socket)
                pg.consume_input()
            result = pg.get_result()
            if result is None:
                if not is_pipeline or self.is_dead:
                    break
            elif result.status == ExecStatus.PIPELINE_SYNC:
                pg.exit_pipeline_mode()
                break
            else:
                results.append(result)
        return results


class _Received:
    """A result of the pipeline, loaded when it is read."""

    __slots__ = ("_result", "_wire")

    def __init__(self, wire: StatementPipeline, result: PGresult) -> None:
        self._wire = wire
        self._result = result

    def rows(self) -> list[Row]:
        """Return the rows of the result as Python values."""
        return self._wire.load_rows(self._result)

    def count(self) -> int:
        """Return the number of rows affected or returned."""
        return self._result.command_tuples or 0

    def status(self) -> str:
        """Return the server's command tag."""
        return (self._result.command_status or b"").decode()


def _sent(ask: PipelinedStatement) -> Encoded:
    assert ask.encoded is not None, f"{ask.label} was not built for the pipeline"
    return ask.encoded


def _key(ask: PipelinedStatement) -> tuple[bytes, tuple[int, ...]]:
    """Return the identity of a prepared statement: its text and its parameters' types."""
    encoded = _sent(ask)
    return encoded.text, encoded.types


def _wait(fileno: int, *, writing: bool = False) -> int:
    """Wait until the socket can be read (or written). A signal interrupts the wait."""
    if sys.platform == "win32":  # Windows has no poll
        readable, _, _ = select.select([fileno], [fileno] if writing else [], [])
        return 1 if readable else 0
    poll = select.poll()
    poll.register(fileno, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
    return poll.poll()[0][1]


@cache
def _form(text: str) -> _Form:
    """Replace `%(name)s` by `$n`, the same number for the same name."""
    names: dict[str, int] = {}

    def substitute(mark: re.Match[str]) -> str:
        name = mark.group(1)
        return "%" if name is None else f"${names.setdefault(name, len(names) + 1)}"

    return _Form(_MARK.sub(substitute, text).encode(), tuple(names))


def _encoded(value: Any) -> tuple[bytes | None, int]:
    """Return a parameter as text with its type; the server infers a missing type.

    Every int is sent as bigint, so that a statement has one prepared form, not three.
    """
    if value is None:
        return None, _NO_TYPE
    kind = type(value)
    if kind is str:
        return _checked(value.encode()), _NO_TYPE
    if kind is int:
        return b"%d" % value, _INT8
    if kind is bool:
        return b"t" if value else b"f", _BOOL
    if kind is float:
        return repr(value).encode(), _FLOAT8
    if kind is bytes:
        return b"\\x" + value.hex().encode(), _BYTEA
    if isinstance(value, list | tuple):
        return _encoded_list(value)
    for plain in (str, int, float):  # subclasses, such as StrEnum
        if isinstance(value, plain):
            return _encoded(plain.__str__(value) if plain is str else plain(value))
    raise psycopg.ProgrammingError(f"cannot send a {kind.__name__} to PostgreSQL")


def _encoded_list(values: Sequence[Any]) -> tuple[bytes, int]:
    if not values:
        return b"{}", _NO_TYPE
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return array_literal(values, "bigint").encode(), _INT8_ARRAY
    is_text = all(value is None or isinstance(value, str) for value in values)
    literal = array_literal(values, "text" if is_text else "numeric")
    return _checked(literal.encode()), _NO_TYPE


def _checked(data: bytes) -> bytes:
    if b"\0" in data:
        raise psycopg.DataError("PostgreSQL text cannot hold NUL (0x00)")
    return data
