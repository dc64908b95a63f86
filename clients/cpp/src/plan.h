#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image.h"

namespace dissociated {

/// What a server can do wrong on purpose, or unusually but rightly, so that clients can be tested against it.
enum class ServerFault {
  kNone,
  kReorder,         ///< neighbours change places (right)
  kBodiesFirst,     ///< all bodies before any metadata (right)
  kEndFirst,        ///< the end overtakes the last metadata (right)
  kGap,             ///< message 1 is left out
  kDuplicate,       ///< metadata of message 1 twice
  kDuplicateBody,   ///< first body twice
  kReservedBits,    ///< bit 40 of the first body's tag is set
  kShift55,         ///< the type of the first body is shifted by 55, as the specification's diagrams do
  kUnknownType,     ///< first body has type 7
  kBadEos,          ///< end-of-stream of 4 bytes
  kLongEos,         ///< end-of-stream of 6 bytes
  kEarlyEos,        ///< its number is one too low
  kLateEos,         ///< its number is one too high
  kNoEos,           ///< it never comes
  kSilent,          ///< nothing is sent
  kSilentMidway,    ///< nothing behind the first body
  kNoBody,          ///< the first body never comes
  kDieMidway,       ///< kill -9 behind the first metadata with a body
  kCloseMidway,     ///< orderly end behind the first body
  kShortBody,       ///< first body is 8 bytes too short
  kLongBody,        ///< first body is 8 bytes too long
  kGarbageMetadata, ///< message 1 is no flatbuffer
  kShortPrefix,     ///< message 1 is 3 bytes long
  kUnknownMessage,  ///< message 1 has type 9
  kNoSchema,        ///< the stream starts with a batch
  kBodyOfSchema,    ///< the schema has a body
  kType1List,       ///< a body by reference that no location announced
  kType1BadCount,   ///< with --by-reference: the first list has a count that is not that of its pairs
  kType1Short,      ///< with --by-reference: a buffer of the first list is shorter than the metadata says
  kError,           ///< error_data behind the first body
};

ServerFault ParseServerFault(std::string_view name);

/// How a body by reference lists its buffers; the ways of format-docs/body-message.md.
enum class ListForm { kEach, kWhole, kNonEmpty };

/// One step of a server's stream.
struct Step {
  enum class Kind { kMetadata, kBody, kError, kSilence, kDeath, kClose };

  Kind kind;
  uint64_t tag = 0;                                     ///< of a body
  wire::Bytes bytes;                                    ///< the message, unless it has parts
  std::vector<std::shared_ptr<arrow::Buffer>> parts;    ///< of a packed body
  std::vector<uint64_t> leases;                         ///< addresses that a list gives out
};

/// What to send for an image, in order. The parts are the image's.
std::vector<Step> MakePlan(const Image& image, std::optional<ListForm> by_reference, ServerFault fault);

}  // namespace dissociated
