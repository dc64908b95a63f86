"""The byte layouts of the Dissociated IPC specification and of the shared-memory transport.

Pure functions: no I/O, no threads. All integers are little-endian. Everything received is checked
here before anything else looks at it.
"""

from .body import (
    BY_REFERENCE,
    MAX_BUFFERS,
    MAX_FREES,
    PACKED,
    BufferList,
    body_sequence,
    body_tag,
    body_type,
    encode_free_list,
    parse_free_list,
)
from .exchange import (
    FLIGHT,
    INLINE,
    ExchangeCommand,
    ExchangeOffer,
    frame_metadata,
    split_metadata,
)
from .frame import (
    FRAME_HEADER,
    HEADER_LENGTH,
    MAX_SHORT_PAYLOAD,
    Hello,
    Kind,
    Summary,
    check_header,
    encode_error,
    frame,
    header,
    parse_error,
    parse_segment,
    segment_frame,
)
from .ipc_message import IpcMessage, MessageParser
from .metadata import (
    PREFIX_LENGTH,
    MetadataMessage,
    end_of_stream,
    metadata_message,
    sequence_distance,
)
from .uri import DissociatedUri

__all__ = [
    "BY_REFERENCE",
    "BufferList",
    "DissociatedUri",
    "ExchangeCommand",
    "ExchangeOffer",
    "FLIGHT",
    "FRAME_HEADER",
    "HEADER_LENGTH",
    "Hello",
    "INLINE",
    "IpcMessage",
    "Kind",
    "MAX_BUFFERS",
    "MAX_FREES",
    "MAX_SHORT_PAYLOAD",
    "MessageParser",
    "MetadataMessage",
    "PACKED",
    "PREFIX_LENGTH",
    "Summary",
    "body_sequence",
    "body_tag",
    "body_type",
    "check_header",
    "encode_error",
    "encode_free_list",
    "end_of_stream",
    "frame",
    "frame_metadata",
    "header",
    "metadata_message",
    "parse_error",
    "parse_free_list",
    "parse_segment",
    "segment_frame",
    "sequence_distance",
    "split_metadata",
]
