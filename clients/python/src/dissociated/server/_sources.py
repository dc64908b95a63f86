"""What is served: tables and files that stay, and streams made for each reader."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional, Union

import pyarrow as pa

from ..errors import Code, DissociatedError

Source = Union[pa.Table, pa.RecordBatch, str, "os.PathLike[str]", Callable[[], Any]]
Streams = Union[Mapping[str, Source], Callable[[str], Any]]


class Batches:
    """A schema and batches with their custom metadata, to be read once."""

    def __init__(self, schema: pa.Schema, batches: Iterator[Any], close: Any = None) -> None:
        self.schema = schema
        self._batches = batches
        self._close = close

    def __iter__(self) -> Iterator[Any]:
        """Pairs of batch and custom metadata."""
        return self._batches

    def close(self) -> None:
        """Lets go of the source."""
        if self._close is not None:
            self._close()
            self._close = None


def open_source(name: str, source: Any) -> Batches:
    """Opens a table, batch, reader, file, or a function that gives one of these."""
    if callable(source) and not isinstance(source, type):
        try:
            source = source()
        except DissociatedError:
            raise
        except Exception as e:
            raise DissociatedError(Code.INTERNAL, f"stream failed: {e!r}, name={name}") from e
    if isinstance(source, (str, os.PathLike)):
        return _open_file(name, os.fspath(source))
    if isinstance(source, pa.RecordBatch):
        return Batches(source.schema, iter([(source, None)]))
    if isinstance(source, pa.Table):
        return Batches(source.schema, ((b, None) for b in source.to_batches()))
    if not isinstance(source, pa.RecordBatchReader) and hasattr(source, "__arrow_c_stream__"):
        source = pa.RecordBatchReader.from_stream(source)
    if isinstance(source, pa.RecordBatchReader):
        return Batches(source.schema, _read(name, source), source.close)
    raise DissociatedError(
        Code.INTERNAL, f"stream failed: cannot serve a {type(source).__name__}, name={name}"
    )


def _read(name: str, reader: Any) -> Iterator[Any]:
    while True:
        try:
            pair = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        except NotImplementedError:
            for batch in reader:
                yield batch, None
            return
        except DissociatedError:
            raise
        except Exception as e:
            raise DissociatedError(Code.INTERNAL, f"stream failed: {e}, name={name}") from e
        yield pair.batch, pair.custom_metadata


def _open_file(name: str, path: str) -> Batches:
    try:
        file = pa.OSFile(path, "rb")
    except OSError as e:
        code = Code.NOT_FOUND if isinstance(e, FileNotFoundError) else Code.UNAVAILABLE
        raise DissociatedError(code, f"file cannot be read: {e.strerror}, file={path}") from e
    try:
        if file.read(6) == b"ARROW1":
            reader = pa.ipc.open_file(file)
            return Batches(reader.schema, _file_batches(path, reader), file.close)
        file.seek(0)
        stream = pa.ipc.open_stream(file)
        return Batches(stream.schema, _stream_batches(path, stream), file.close)
    except (pa.ArrowException, OSError) as e:
        file.close()
        raise _corrupt(path, e) from e


def _file_batches(path: str, reader: Any) -> Iterator[Any]:
    for i in range(reader.num_record_batches):
        try:
            pair = reader.get_batch_with_custom_metadata(i)
            pair.batch.validate()
        except (pa.ArrowException, OSError) as e:
            raise _corrupt(path, e) from e
        yield pair.batch, pair.custom_metadata


def _stream_batches(path: str, reader: Any) -> Iterator[Any]:
    while True:
        try:
            pair = reader.read_next_batch_with_custom_metadata()
            pair.batch.validate()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as e:
            raise _corrupt(path, e) from e
        yield pair.batch, pair.custom_metadata


def _corrupt(path: str, cause: Exception) -> DissociatedError:
    text = " ".join(str(cause).split())
    return DissociatedError(Code.DATA_CORRUPT, f"file is not Arrow or cut: {text}, file={path}")


class Catalogue:
    """The names that are served. Thread-safe."""

    def __init__(self, streams: Streams) -> None:
        self._lookup: Optional[Callable[[str], Any]] = None
        self._sources: Mapping[str, Any] = {}
        self._lock = threading.Lock()
        if callable(streams):
            self._lookup = streams
        else:
            self._sources = streams

    def names(self) -> list[str]:
        """The known names; a function's are not."""
        return sorted(self._sources)

    def source(self, name: str) -> Any:
        """What has that name, or NOT_FOUND."""
        found = self._sources.get(name)
        if found is None and self._lookup is not None:
            try:
                found = self._lookup(name)
            except (KeyError, LookupError):
                found = None
        if found is None:
            raise DissociatedError(Code.NOT_FOUND, f"no such stream, name={name}")
        return found

    def is_resident(self, name: str) -> bool:
        """Whether every reader gets the same data, so that it can be kept."""
        source = self._sources.get(name)
        return isinstance(source, (pa.Table, pa.RecordBatch, str, os.PathLike))
