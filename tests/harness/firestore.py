"""A server of Firestore's gRPC protocol in this process, for Google's own client library.

It has what the sink relies on: transactions that read one snapshot and are aborted when a document
they read was changed before they commit, preconditions, field masks, transforms, queries over one
collection, and the errors of the service. Any call can be made to fail, before or after its effect.
Google's emulator is a Java program that no package registry has; this takes its place in the tests.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
from google.cloud.firestore_v1 import types
from google.protobuf.timestamp_pb2 import Timestamp

DOCUMENT_BYTES_MAX = 1_048_576
START = 1_763_337_600_000_000
DATABASES = ("(default)", "other")
_STEP = re.compile(r"`((?:[^`\\]|\\.)*)`|([^.`]+)")
_RESERVED = re.compile(r"\.{1,2}|__.*__", re.DOTALL)

Document: Any = types.Document.pb()
Code = grpc.StatusCode


class Refused(Exception):
    """A call that ends with a status."""

    def __init__(self, code: Any, text: str) -> None:
        self.code = code
        super().__init__(text)


@dataclass
class Transaction:
    """An open transaction: the version of its snapshot, and the documents it read."""

    version: int
    read: set[str] = field(default_factory=set)


class FirestoreServer:
    """A running server; `host` is what FIRESTORE_EMULATOR_HOST is set to."""

    def __init__(self) -> None:
        self.calls: defaultdict[str, int] = defaultdict(int)
        self.aborted = 0
        self._history: defaultdict[str, list[tuple[int, Any]]] = defaultdict(list)
        self._version = 0
        self._open: dict[bytes, Transaction] = {}
        self._faults: list[tuple[str, Any, bool]] = []
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(32))
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self.host = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop(None).wait()

    def fail(self, method: str, code: Any, *, times: int = 1, after: bool = False) -> None:
        """Let the next calls of a method fail, before or after they have had their effect."""
        self._faults += [(method, code, after)] * times

    def mend(self) -> None:
        """Let no more calls fail."""
        self._faults.clear()

    def clear(self) -> None:
        """Forget everything: documents, transactions, faults and counts."""
        with self._lock:
            self._history.clear()
            self._open.clear()
            self._faults.clear()
            self.calls.clear()
            self.aborted = 0

    def names(self, collection: str) -> list[str]:
        """Return the ids of the documents of a collection."""
        with self._lock:
            found = [name for name in self._history if self._read(name, self._version) is not None]
        return sorted(
            name.rpartition("/")[2] for name in found if f"/documents/{collection}/" in name
        )

    # --- calls ------------------------------------------------------------------------------------

    def begin_transaction(self, request: Any) -> Any:
        """Open a transaction on a snapshot of the present."""
        del request
        name = f"tx-{self.calls['BeginTransaction']}-{self._version}".encode()
        self._open[name] = Transaction(self._version)
        return types.BeginTransactionResponse.pb()(transaction=name)

    def rollback(self, request: Any) -> Any:
        """Forget a transaction."""
        from google.protobuf.empty_pb2 import Empty

        self._open.pop(request.transaction, None)
        return Empty()

    def batch_get_documents(self, request: Any) -> Iterator[Any]:
        """Return documents, as the transaction's snapshot has them."""
        transaction = self._transaction(request)
        version = self._version if transaction is None else transaction.version
        for name in request.documents:
            _check_name(name)
            if transaction is not None:
                transaction.read.add(name)
            made = types.BatchGetDocumentsResponse.pb()(read_time=_time(version))
            found = self._read(name, version)
            if found is None:
                made.missing = name
            else:
                made.found.CopyFrom(found)
            yield made

    def run_query(self, request: Any) -> Iterator[Any]:
        """Return the documents of a collection by the conditions and order of a query."""
        query = request.structured_query
        (source,) = query.from_
        prefix = f"{request.parent}/{source.collection_id}/"
        found = []
        for name in self._history:
            one = self._read(name, self._version)
            is_in = name.startswith(prefix) and "/" not in name[len(prefix) :]
            if one is not None and is_in and _matches(one, query.where):
                found.append(one)
        found.sort(key=lambda one: one.name)
        for order in reversed(query.order_by):
            path = order.field.field_path
            if path == "__name__":
                found.sort(key=lambda one: one.name, reverse=order.direction == 2)
            else:
                found = [one for one in found if _at(one, path) is not None]
                found.sort(key=lambda one: _key(_at(one, path)), reverse=order.direction == 2)
        limit = query.limit.value if query.HasField("limit") else len(found)
        for one in found[:limit]:
            yield types.RunQueryResponse.pb()(document=one, read_time=_time(self._version))
        yield types.RunQueryResponse.pb()(read_time=_time(self._version))

    def commit(self, request: Any) -> Any:
        """Apply all writes, or none."""
        if request.transaction:
            transaction = self._open.pop(request.transaction, None)
            if transaction is None:
                raise Refused(
                    Code.INVALID_ARGUMENT, "The referenced transaction has expired or is not valid."
                )
            if any(self._changed_at(name) > transaction.version for name in transaction.read):
                self.aborted += 1
                raise Refused(Code.ABORTED, "Too much contention on these documents.")
        version = self._version + 1
        changes: dict[str, Any] = {}
        results = []
        for write in request.writes:
            results.append(self._apply(write, changes, version))
        for name, made in changes.items():
            self._history[name].append((version, made))
        self._version = version
        return types.CommitResponse.pb()(write_results=results, commit_time=_time(version))

    # --- state ------------------------------------------------------------------------------------

    def _apply(self, write: Any, changes: dict[str, Any], version: int) -> Any:
        operation = write.WhichOneof("operation")
        name = write.delete if operation == "delete" else write.update.name
        _check_name(name)
        before = changes[name] if name in changes else self._read(name, self._version)
        self._check_precondition(write, before, name)
        result = types.WriteResult.pb()(update_time=_time(version))
        if operation == "delete":
            changes[name] = None
            return result
        made = Document(name=name, update_time=_time(version), create_time=_time(version))
        if before is not None:
            made.create_time.CopyFrom(before.create_time)
        if write.HasField("update_mask"):
            if before is not None:
                _copy(before.fields, made.fields)
            for path in write.update_mask.field_paths:
                _set(made, path, _at(write.update, path))
        else:
            _copy(write.update.fields, made.fields)
        for transform in write.update_transforms:
            value = _transformed(transform, _at(made, transform.field_path), version)
            _set(made, transform.field_path, value)
            result.transform_results.append(value)
        _check_document(made)
        changes[name] = made
        return result

    def _check_precondition(self, write: Any, before: Any, name: str) -> None:
        condition = write.current_document
        kind = condition.WhichOneof("condition_type")
        if kind == "exists" and condition.exists and before is None:
            raise Refused(Code.NOT_FOUND, f"No document to update: {name}")
        if kind == "exists" and not condition.exists and before is not None:
            raise Refused(Code.ALREADY_EXISTS, f"Document already exists: {name}")
        if kind == "update_time" and (
            before is None or before.update_time != condition.update_time
        ):
            raise Refused(Code.FAILED_PRECONDITION, "the stored version does not match")

    def _read(self, name: str, version: int) -> Any:
        for at, made in reversed(self._history.get(name, [])):
            if at <= version:
                return made
        return None

    def _changed_at(self, name: str) -> int:
        history = self._history.get(name)
        return history[-1][0] if history else 0

    def _transaction(self, request: Any) -> Transaction | None:
        if not request.transaction:
            return None
        found = self._open.get(request.transaction)
        if found is None:
            raise Refused(Code.INVALID_ARGUMENT, "The referenced transaction has expired.")
        return found

    # --- gRPC -------------------------------------------------------------------------------------

    def _handlers(self) -> Any:
        calls: dict[str, tuple[Callable[[Any], Any], Any]] = {
            "BeginTransaction": (self.begin_transaction, types.BeginTransactionRequest),
            "Commit": (self.commit, types.CommitRequest),
            "Rollback": (self.rollback, types.RollbackRequest),
        }
        streams: dict[str, tuple[Callable[[Any], Any], Any]] = {
            "BatchGetDocuments": (self.batch_get_documents, types.BatchGetDocumentsRequest),
            "RunQuery": (self.run_query, types.RunQueryRequest),
        }
        made = {}
        for name, (body, kind) in calls.items():
            made[name] = grpc.unary_unary_rpc_method_handler(
                self._unary(name, body), kind.pb().FromString, lambda m: m.SerializeToString()
            )
        for name, (body, kind) in streams.items():
            made[name] = grpc.unary_stream_rpc_method_handler(
                self._streamed(name, body), kind.pb().FromString, lambda m: m.SerializeToString()
            )
        return grpc.method_handlers_generic_handler("google.firestore.v1.Firestore", made)

    def _unary(self, name: str, body: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda request, context: self._serve(name, body, request, context)

    def _streamed(self, name: str, body: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def call(request: Any, context: Any) -> Iterator[Any]:
            yield from self._serve(name, lambda one: list(body(one)), request, context)

        return call

    def _serve(self, name: str, body: Callable[[Any], Any], request: Any, context: Any) -> Any:
        with self._lock:
            self.calls[name] += 1
            fault = next((one for one in self._faults if one[0] == name), None)
            if fault is not None:
                self._faults.remove(fault)
            try:
                if fault is not None and not fault[2]:
                    raise Refused(fault[1], "injected before")
                _check_database(request)
                made = body(request)
                if fault is not None:
                    raise Refused(fault[1], "injected after")
                return made
            except Refused as error:
                code, text = error.code, str(error)
        return context.abort(code, text)


def _check_database(request: Any) -> None:
    place = getattr(request, "database", "") or getattr(request, "parent", "")
    database = place.split("/")[3]
    if database not in DATABASES:
        raise Refused(Code.NOT_FOUND, f"The database {database} does not exist for project acme")


def _check_name(name: str) -> None:
    parts = name.partition("/documents/")[2].split("/")
    bad = [one for one in parts if not one or _RESERVED.fullmatch(one) or len(one.encode()) > 1_500]
    if len(parts) % 2 or bad:
        raise Refused(Code.INVALID_ARGUMENT, f"Document name {name[:80]} is not valid.")


def _check_document(made: Any) -> None:
    if made.ByteSize() > DOCUMENT_BYTES_MAX:
        raise Refused(Code.INVALID_ARGUMENT, "The document exceeds 1,048,576 bytes.")
    for value in made.fields.values():
        _check_value(value)


def _check_value(value: Any) -> None:
    kind = value.WhichOneof("value_type")
    if kind == "array_value":
        for one in value.array_value.values:
            if one.WhichOneof("value_type") == "array_value":
                raise Refused(Code.INVALID_ARGUMENT, "Cannot convert an array in an array.")
            _check_value(one)
    elif kind == "map_value":
        for one in value.map_value.fields.values():
            _check_value(one)


def _time(version: int) -> Timestamp:
    made = Timestamp()
    made.FromMicroseconds(START + version)
    return made


def _copy(source: Any, target: Any) -> None:
    for name, value in source.items():
        target[name].CopyFrom(value)


def _steps(path: str) -> list[str]:
    return [
        re.sub(r"\\(.)", r"\1", one[1]) if one[1] is not None else one[2]
        for one in _STEP.finditer(path)
    ]


def _at(made: Any, path: str) -> Any:
    """Return the value of a field path; None if there is none."""
    fields, found = made.fields, None
    for step in _steps(path):
        if fields is None or step not in fields:
            return None
        found = fields[step]
        is_map = found.WhichOneof("value_type") == "map_value"
        fields = found.map_value.fields if is_map else None
    return found


def _set(made: Any, path: str, value: Any) -> None:
    """Set the value of a field path; None removes it."""
    *above, last = _steps(path)
    fields = made.fields
    for step in above:
        if step not in fields or fields[step].WhichOneof("value_type") != "map_value":
            fields[step].map_value.SetInParent()
        fields = fields[step].map_value.fields
    if value is None:
        fields.pop(last, None)
    else:
        fields[last].CopyFrom(value)


def _transformed(transform: Any, before: Any, version: int) -> Any:
    made = types.Value.pb()()
    kind = transform.WhichOneof("transform_type")
    if kind == "increment":
        by = transform.increment
        is_float = "double_value" in (
            by.WhichOneof("value_type"),
            None if before is None else before.WhichOneof("value_type"),
        )
        total = _number(by) + (0 if before is None else _number(before))
        if is_float:
            made.double_value = total
        else:
            made.integer_value = total
    elif kind == "set_to_server_value":
        made.timestamp_value.CopyFrom(_time(version))
    else:
        raise Refused(Code.UNIMPLEMENTED, f"transform {kind}")
    return made


def _number(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    return getattr(value, kind) if kind in ("integer_value", "double_value") else 0


def _key(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    found = getattr(value, kind)
    return (found.seconds, found.nanos) if kind == "timestamp_value" else found


def _matches(made: Any, where: Any) -> bool:
    kind = where.WhichOneof("filter_type")
    if kind is None:
        return True
    if kind == "composite_filter":
        return all(_matches(made, one) for one in where.composite_filter.filters)
    condition = where.field_filter
    found = _at(made, condition.field.field_path)
    same = found is not None and found.WhichOneof("value_type") == condition.value.WhichOneof(
        "value_type"
    )
    if not same:
        return False
    left, right = _key(found), _key(condition.value)
    return bool(
        {1: left < right, 2: left <= right, 3: left > right, 4: left >= right, 5: left == right}[
            condition.op
        ]
    )
