#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "error.h"

/// The messages of the protocol as bytes: format-docs/metadata-message.md, body-message.md, free-data.md and errors.md.
/// Everything is little-endian. Readers check each length and count before use and throw PROTOCOL_VIOLATION.
namespace dissociated::wire {

using Bytes = std::vector<uint8_t>;
using View = std::span<const uint8_t>;

inline constexpr size_t kPrefixLength = 5;
inline constexpr size_t kMostBuffers = size_t{1} << 24;
inline constexpr size_t kLongestFreeList = size_t{1} << 20;
inline constexpr size_t kLongestRequest = size_t{1} << 20;

enum class MetadataType : uint8_t { kEndOfStream = 0, kMetadata = 1 };

/// The five bytes before a flatbuffer, or the whole of an end-of-stream.
struct Prefix {
  MetadataType type;
  uint32_t sequence;

  void WriteTo(uint8_t* out) const;
};

/// The prefix of a whole message.
Prefix ReadPrefix(View message);

enum class BodyType : uint8_t { kPacked = 0, kByReference = 1 };

/// Sequence number in bits 0-31, body type in bits 56-63, nothing between.
struct BodyTag {
  BodyType type;
  uint32_t sequence;

  uint64_t value() const { return uint64_t{static_cast<uint8_t>(type)} << 56 | sequence; }
};

BodyTag ReadBodyTag(uint64_t tag);

/// Where a buffer lies in memory of the server.
struct Range {
  uint64_t address;
  uint64_t length;
};

/// A body by reference.
struct BufferList {
  uint64_t total;
  std::vector<Range> buffers;
};

BufferList ReadBufferList(View body);
Bytes WriteBufferList(const BufferList& list);

std::vector<uint64_t> ReadFreeList(View body);
Bytes WriteFreeList(std::span<const uint64_t> addresses);

/// The body of an error_data message: a code and a text.
Error ReadError(View body);
Bytes WriteError(const Error& error);

}  // namespace dissociated::wire
